//! The trait of tunnels: drivers of many machines that announce themselves and run containers.

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Container;

use super::node::NodeDescription;
use super::node_id::NodeId;
use super::pod_key::PodKey;
use super::sender::TunnelSender;
use crate::error::{DriverError, Reason};
use crate::id::ContainerKey;

/// A driver of many machines that announce themselves.
///
/// Guarantees of every implementation:
///
/// * A machine can report only about itself: the tunnel compares the id in a message with the origin of the message (topic, address),
///   and drops the message if they differ.
/// * Every message of a machine is limited in size and validated before it is passed to the [`TunnelSender`].
/// * A request is sent at most once; the caller repeats it, after a look at what the machine reports. While the tunnel knows that a
///   request is still being executed, its repetition fails with [`Reason::Conflict`](crate::Reason::Conflict). Another request for the
///   same container ends the wait for the answer to the earlier one.
/// * The answer to a request goes through the [`TunnelSender`]. If the machine does not answer, there is no answer, or
///   [`OperationResponseResult::Unknown`](super::OperationResponseResult::Unknown); this never counts as a machine without containers.
/// * What a machine reports about itself is passed on in the order in which the machine reported it: a container that a report shows is
///   taken for gone when the next report lacks it.
/// * An answer that belongs to no request in progress, because it is late or duplicated, is dropped.
///
/// ```
/// use async_trait::async_trait;
/// use k8s_openapi::api::core::v1::Container;
/// use staffetta_driver::tunnel::{NodeDescription, NodeId, PodKey, Tunnel, TunnelSender};
/// use staffetta_driver::{ContainerKey, DriverError, Reason};
///
/// /// A tunnel to no machine.
/// struct Closed;
///
/// #[async_trait]
/// impl Tunnel for Closed {
///     fn key(&self) -> &str {
///         "closed"
///     }
///     fn ready(&self) -> bool {
///         true
///     }
///     async fn start(&self, _: &str, _: &str, _: TunnelSender) -> Result<(), DriverError> {
///         std::future::pending().await
///     }
///     async fn fetch_health_data(&self, _: &NodeId) -> Result<(), DriverError> {
///         Err(DriverError::new(Reason::NotFound, "ask a machine for its health"))
///     }
///     async fn query_all_container_status_data(&self, _: &NodeId) -> Result<(), DriverError> {
///         Err(DriverError::new(Reason::NotFound, "ask a machine for its containers"))
///     }
///     async fn start_container(&self, _: &NodeId, _: &PodKey, _: &Container) -> Result<(), DriverError> {
///         Err(DriverError::new(Reason::NotFound, "start a container"))
///     }
///     async fn shutdown_container(&self, _: &NodeId, _: &PodKey, _: &Container) -> Result<(), DriverError> {
///         Err(DriverError::new(Reason::NotFound, "stop a container"))
///     }
///     fn get_container_unique_key(&self, pod: &PodKey, container: &Container) -> ContainerKey {
///         format!("{pod}/{}", container.name).into()
///     }
/// }
/// ```
#[async_trait]
pub trait Tunnel: Send + Sync + 'static {
    /// Returns the name of the tunnel. It is written to a label of each node of the tunnel, by which a later process finds the tunnel
    /// of the node, so it must be a valid label value and never change.
    fn key(&self) -> &str;

    /// Returns `true` while [`start`](Self::start) runs and the tunnel can receive reports. A tunnel that lost its connection is
    /// still ready: it reconnects by itself.
    fn ready(&self) -> bool;

    /// Returns `false` while the tunnel can receive no reports at all, for example because the connection to its broker is lost. During
    /// that time, a silent machine is not considered gone. By default, always returns `true`.
    fn connected(&self) -> bool {
        true
    }

    /// Returns the number of reports of machines that the tunnel has dropped since it was created, because they were invalid, late, not
    /// about their sender, or above a limit. By default, always returns 0.
    fn dropped_reports(&self) -> u64 {
        0
    }

    /// Runs the tunnel until the returned future is dropped, which closes all connections; it is called once at a time. Everything
    /// that machines report or answer is passed to `sender`, from the first moment on.
    ///
    /// `client_id` is unique among all controllers that are connected at the same time. `environment` separates installations that
    /// share a broker.
    ///
    /// An error ends the tunnel. A lost connection is no error.
    async fn start(
        &self,
        client_id: &str,
        environment: &str,
        sender: TunnelSender,
    ) -> Result<(), DriverError>;

    /// Notifies the tunnel that requests to a node follow, and of each new description. After a restart or a change of the leader, the
    /// description comes from the Node object, because the machine has not reported to this process yet. It must not wait for the
    /// machine: other nodes wait for this call, and its future is dropped after a second. The default implementation does nothing.
    async fn on_node_start(&self, _node: &NodeId, _description: &NodeDescription) {}

    /// Notifies the tunnel that no more requests to a node follow. It must not wait for the machine: its future is dropped after a
    /// second, as that of [`on_node_start`](Self::on_node_start) is. The default implementation does nothing.
    async fn on_node_stop(&self, _node: &NodeId) {}

    /// Asks a node for its health. The answer comes as [`TunnelEvent::NodeStatus`](super::TunnelEvent::NodeStatus). The call
    /// ends when the request is sent or, if the machine answers on the same connection, when it has answered.
    async fn fetch_health_data(&self, node: &NodeId) -> Result<(), DriverError>;

    /// Asks a node for the status of all its containers. The answer comes as
    /// [`TunnelEvent::AllContainerStatuses`](super::TunnelEvent::AllContainerStatuses). Like
    /// [`fetch_health_data`](Self::fetch_health_data), the call ends when the request is sent or, on a connection that also carries the
    /// answer, when the machine has answered.
    async fn query_all_container_status_data(&self, node: &NodeId) -> Result<(), DriverError>;

    /// Asks a node to start a container. Does not wait for it; the answer comes as
    /// [`TunnelEvent::StartContainerResponse`](super::TunnelEvent::StartContainerResponse).
    async fn start_container(
        &self,
        node: &NodeId,
        pod: &PodKey,
        container: &Container,
    ) -> Result<(), DriverError>;

    /// Asks a node to activate a container that it has loaded and that does not run, in place of another version of it that runs. Does not
    /// wait for it; the answer comes as [`TunnelEvent::StartContainerResponse`](super::TunnelEvent::StartContainerResponse). The default
    /// implementation fails with [`Reason::Unsupported`](crate::Reason::Unsupported), for machines that start what they load.
    async fn activate_container(
        &self,
        _node: &NodeId,
        _pod: &PodKey,
        _container: &Container,
    ) -> Result<(), DriverError> {
        let error = DriverError::new(Reason::Unsupported, "activate a container");
        Err(error.detail("the machine has loaded it and does not run it, and the tunnel cannot activate it"))
    }

    /// Asks a node to stop a container. Does not wait for it; the answer comes as
    /// [`TunnelEvent::ShutdownContainerResponse`](super::TunnelEvent::ShutdownContainerResponse). The answer is a success if the
    /// machine does not have the container.
    async fn shutdown_container(
        &self,
        node: &NodeId,
        pod: &PodKey,
        container: &Container,
    ) -> Result<(), DriverError>;

    /// Returns the key under which the machine reports a container. It depends on the arguments only, and never fails: a container
    /// that the machine cannot run has a key too.
    fn get_container_unique_key(&self, pod: &PodKey, container: &Container) -> ContainerKey;
}
