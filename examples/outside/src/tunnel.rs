//! A custom tunnel, to the printing presses of the vendor Acme: each becomes a node, and the containers of its pods are prints.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Container;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use staffetta_driver::tunnel::{
    ContainerOperationResponseData, ContainerState, ContainerStatusData, NetworkInfo, NodeActivation,
    NodeDescription, NodeId, NodeMetadata, NodeStatusData, OperationResponseResult, PodKey, Tunnel,
    TunnelSender,
};
use staffetta_driver::{ContainerKey, DriverError, Reason};
use staffetta_handler::Registry;

/// The name of the tunnel in the configuration, and its key in the labels of nodes.
const KEY: &str = "acme-press";

/// Makes the tunnel known: `[vnode] tunnels = ["acme-press"]`.
pub fn register(registry: &mut Registry) {
    registry.driver::<dyn Tunnel>(KEY, "Printing presses of Acme.", |_| Ok(Arc::new(Presses::default())));
}

/// The tunnel, with the one press `press-1`, which does at once what it is asked for. (Real ones would be connected.)
#[derive(Default)]
struct Presses {
    sender: Mutex<Option<TunnelSender>>,
    /// The hall of each press.
    halls: Mutex<BTreeMap<NodeId, String>>,
    prints: Mutex<BTreeSet<ContainerKey>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failed(error: impl Error + Send + Sync + 'static) -> DriverError {
    DriverError::new(Reason::Unavailable, "report a press").because(error)
}

impl Presses {
    fn sender(&self) -> Result<TunnelSender, DriverError> {
        let stopped =
            || DriverError::new(Reason::Unavailable, "call a press").detail("the tunnel does not run");
        lock(&self.sender).clone().ok_or_else(stopped)
    }

    fn success(key: ContainerKey) -> ContainerOperationResponseData {
        let (reason, message) = (String::new(), String::new());
        ContainerOperationResponseData {
            container_key: key,
            result: OperationResponseResult::Success,
            reason,
            message,
            instead: None,
        }
    }
}

#[async_trait]
impl Tunnel for Presses {
    fn key(&self) -> &str {
        KEY
    }

    fn ready(&self) -> bool {
        lock(&self.sender).is_some()
    }

    async fn start(
        &self,
        _client: &str,
        _environment: &str,
        sender: TunnelSender,
    ) -> Result<(), DriverError> {
        let status = NodeActivation::Activated;
        let metadata = NodeMetadata { name: "press".into(), version: "1".into(), status };
        let tunnel_data = [("hall".to_owned(), "north".into())].into_iter().collect();
        let (network_info, custom_labels) = (NetworkInfo::default(), [].into());
        let node = NodeDescription { metadata, network_info, custom_labels, tunnel_data };
        let press = "press-1".parse().map_err(failed)?;
        *lock(&self.sender) = Some(sender.clone());
        sender.node_discovered(&press, node).map_err(failed)?;
        std::future::pending().await
    }

    async fn on_node_start(&self, node: &NodeId, press: &NodeDescription) {
        // A real tunnel finds the press by this. After a restart, it comes from the Node object.
        let hall = press.tunnel_data.get("hall").and_then(|hall| hall.as_str()).unwrap_or_default();
        lock(&self.halls).insert(node.clone(), hall.to_owned());
    }

    async fn on_node_stop(&self, node: &NodeId) {
        lock(&self.halls).remove(node);
    }

    async fn fetch_health_data(&self, node: &NodeId) -> Result<(), DriverError> {
        let hall = lock(&self.halls).get(node).cloned().unwrap_or_default();
        let custom_annotations = [("example.com/hall".to_owned(), hall)].into();
        let health = NodeStatusData { custom_annotations, ..NodeStatusData::default() };
        self.sender()?.node_status(node, health).map_err(failed)
    }

    async fn query_all_container_status_data(&self, node: &NodeId) -> Result<(), DriverError> {
        let status = |key: &ContainerKey| ContainerStatusData {
            key: key.clone(),
            name: key.to_string(),
            pod_key: PodKey::All,
            state: ContainerState::Activated,
            change_time: Time(k8s_openapi::jiff::Timestamp::now()),
            reason: String::new(),
            message: String::new(),
        };
        let statuses = lock(&self.prints).iter().map(status).collect();
        self.sender()?.all_container_statuses(node, statuses).map_err(failed)
    }

    async fn start_container(
        &self,
        node: &NodeId,
        pod: &PodKey,
        container: &Container,
    ) -> Result<(), DriverError> {
        let key = self.get_container_unique_key(pod, container);
        lock(&self.prints).insert(key.clone());
        self.sender()?.start_container_response(node, Self::success(key)).map_err(failed)
    }

    async fn shutdown_container(
        &self,
        node: &NodeId,
        pod: &PodKey,
        container: &Container,
    ) -> Result<(), DriverError> {
        let key = self.get_container_unique_key(pod, container);
        lock(&self.prints).remove(&key);
        self.sender()?.shutdown_container_response(node, Self::success(key)).map_err(failed)
    }

    fn get_container_unique_key(&self, _: &PodKey, container: &Container) -> ContainerKey {
        container.name.as_str().into()
    }
}
