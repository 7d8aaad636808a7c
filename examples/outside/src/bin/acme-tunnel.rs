//! A custom tunnel, to the printing presses of the vendor Acme, and a program that starts a container on one of them.

use std::collections::BTreeSet;
use std::error::Error;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Container;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use staffetta_driver::tunnel::{
    self, ContainerOperationResponseData, ContainerState, ContainerStatusData, NetworkInfo, NodeActivation,
    NodeDescription, NodeId, NodeMetadata, NodeStatusData, OperationResponseResult, PodKey, Tunnel,
    TunnelEvent, TunnelLimits, TunnelSender,
};
use staffetta_driver::{ContainerKey, DriverError, Reason};

/// The tunnel, with the one press `press-1`, which does at once what it is asked for. (Real ones would be connected.)
#[derive(Default)]
struct Presses {
    sender: Mutex<Option<TunnelSender>>,
    programs: Mutex<BTreeSet<ContainerKey>>,
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
        }
    }
}

#[async_trait]
impl Tunnel for Presses {
    fn key(&self) -> &str {
        "acme-press"
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
        // A real tunnel finds the press by this, also if only its Node object is left to tell.
        println!("{node} is in the hall {}", press.tunnel_data["hall"]);
    }

    async fn fetch_health_data(&self, node: &NodeId) -> Result<(), DriverError> {
        self.sender()?.node_status(node, NodeStatusData::default()).map_err(failed)
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
        let statuses = lock(&self.programs).iter().map(status).collect();
        self.sender()?.all_container_statuses(node, statuses).map_err(failed)
    }

    async fn start_container(
        &self,
        node: &NodeId,
        pod: &PodKey,
        container: &Container,
    ) -> Result<(), DriverError> {
        let key = self.get_container_unique_key(pod, container);
        lock(&self.programs).insert(key.clone());
        self.sender()?.start_container_response(node, Self::success(key)).map_err(failed)
    }

    async fn shutdown_container(
        &self,
        node: &NodeId,
        pod: &PodKey,
        container: &Container,
    ) -> Result<(), DriverError> {
        let key = self.get_container_unique_key(pod, container);
        lock(&self.programs).remove(&key);
        self.sender()?.shutdown_container_response(node, Self::success(key)).map_err(failed)
    }

    fn get_container_unique_key(&self, _: &PodKey, container: &Container) -> ContainerKey {
        container.name.as_str().into()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let (sender, mut receiver) = tunnel::channel(TunnelLimits::default());
    let presses = Presses::default();
    let using = async {
        while let Some((node, event)) = receiver.recv().await {
            match event {
                TunnelEvent::NodeDiscovered(press) => {
                    println!("{node} appears: {:?}", press.metadata.status);
                    receiver.keep(&node);
                    presses.on_node_start(&node, &press).await;
                    let print = Container { name: "print".into(), ..Container::default() };
                    presses.start_container(&node, &PodKey::All, &print).await?;
                }
                TunnelEvent::StartContainerResponse(answer) => {
                    println!("{node} starts {}: {:?}", answer.container_key, answer.result);
                    presses.query_all_container_status_data(&node).await?;
                }
                TunnelEvent::AllContainerStatuses(all) => {
                    all.iter().for_each(|status| println!("{node} runs {}: {}", status.key, status.state));
                    break;
                }
                _ => {}
            }
        }
        Ok(())
    };
    tokio::select! {
        ended = presses.start("client", "example", sender) => ended.map_err(Into::into),
        ended = using => ended,
    }
}
