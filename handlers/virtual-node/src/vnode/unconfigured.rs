//! The bases of tunnels that are not configured any more.

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Container;
use staffetta_driver::tunnel::{NodeId, PodKey, Tunnel, TunnelSender};
use staffetta_driver::{ContainerKey, DriverError, Reason};

/// A tunnel that is not configured any more, with its key. No base answers through it, and none is considered gone, so the nodes of its
/// bases are not ready, and stay: a mistake in the configuration removes no node and no pod.
pub(super) struct UnconfiguredTunnel(pub(super) String);

impl UnconfiguredTunnel {
    /// Returns the error of a `step` that fails because the tunnel is not configured; never returns `Ok`.
    fn refuse(&self, step: &'static str) -> Result<(), DriverError> {
        let detail = format!("the tunnel {} of this node is not in vnode.tunnels", self.0);
        Err(DriverError::new(Reason::Unavailable, step).detail(detail))
    }
}

#[async_trait]
impl Tunnel for UnconfiguredTunnel {
    fn key(&self) -> &str {
        &self.0
    }

    fn ready(&self) -> bool {
        true
    }

    fn connected(&self) -> bool {
        false
    }

    async fn start(&self, _: &str, _: &str, _: TunnelSender) -> Result<(), DriverError> {
        self.refuse("start the tunnel")
    }

    async fn fetch_health_data(&self, _: &NodeId) -> Result<(), DriverError> {
        self.refuse("ask the base for its health")
    }

    async fn query_all_container_status_data(&self, _: &NodeId) -> Result<(), DriverError> {
        self.refuse("ask the base for its modules")
    }

    async fn start_container(&self, _: &NodeId, _: &PodKey, _: &Container) -> Result<(), DriverError> {
        self.refuse("load a module")
    }

    async fn shutdown_container(&self, _: &NodeId, _: &PodKey, _: &Container) -> Result<(), DriverError> {
        self.refuse("unload a module")
    }

    fn get_container_unique_key(&self, _: &PodKey, container: &Container) -> ContainerKey {
        container.name.as_str().into()
    }
}
