//! The tunnel of a replica to the simulated bases.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Container;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use staffetta_driver::tunnel::{
    ContainerOperationResponseData, ContainerState, ContainerStatusData, NetworkInfo, NodeActivation,
    NodeDescription, NodeId, NodeMetadata, NodeStatusData, OperationResponseResult, PodKey, Tunnel,
    TunnelSender,
};
use staffetta_driver::{ContainerKey, DriverError, Reason};
use tokio::time::{Instant, sleep};

use crate::bases::{BASES, Base, Module};
use crate::link::{Fate, Link, Order};
use crate::world::World;

/// The interval between two heartbeats of a base.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// The tunnel of a replica to all bases.
pub(crate) struct SimulatedTunnel {
    link: Arc<Link>,
    sender: Mutex<Option<TunnelSender>>,
    /// The order of the messages on the connection to each base, as MQTT keeps it.
    orders: Mutex<BTreeMap<String, Order>>,
}

impl SimulatedTunnel {
    pub(crate) fn new(link: &Arc<Link>) -> Self {
        Self { link: Arc::clone(link), sender: Mutex::default(), orders: Mutex::default() }
    }

    fn orders(&self) -> MutexGuard<'_, BTreeMap<String, Order>> {
        self.orders.lock().expect("nothing panics with it")
    }

    /// Sends a request to a base. Its answer is passed to `receive`, if both arrive.
    async fn send<T: Send + 'static>(
        &self,
        base: &NodeId,
        what: &str,
        changes: bool,
        work: impl FnOnce(&World, &str) -> Option<T> + Send + 'static,
        receive: impl FnOnce(&TunnelSender, T) + Send + 'static,
    ) -> Result<(), DriverError> {
        let (link, world) = (Arc::clone(&self.link), Arc::clone(&self.link.world));
        let mut draw = world.choices.at(&format!("{} {base} {what}", link.replica));
        let fate = Fate::of(&mut draw, world.is_stormy());
        let sender = self.sender.lock().expect("nothing panics with it").clone();
        let Some(sender) = sender.filter(|_| fate.refusal.is_none()) else {
            return Err(DriverError::new(Reason::Unavailable, "send a request to a base"));
        };
        link.until_up().await;
        if changes {
            world.sends(&link.replica, &format!("vnode.{base}.dev"), &format!("{what} {base}"));
        }
        let base = base.to_string();
        let fate = fate.in_order(self.orders().entry(base.clone()).or_default());
        tokio::spawn(async move {
            let at = async move { work(&world, &base) };
            if let Ok(Some(answer)) = link.transmit(fate, at).await {
                receive(&sender, answer);
            }
        });
        Ok(())
    }
}

#[async_trait]
impl Tunnel for SimulatedTunnel {
    fn key(&self) -> &'static str {
        "simulated"
    }

    fn ready(&self) -> bool {
        true
    }

    async fn start(&self, _: &str, _: &str, sender: TunnelSender) -> Result<(), DriverError> {
        *self.sender.lock().expect("nothing panics with it") = Some(sender);
        loop {
            for number in 0..BASES {
                let base = format!("base-{number}").parse().expect("it is an id");
                let name = format!("base-{number}");
                let _ = self
                    .send(&base, "heartbeat", false, |world, name| world.bases.at(name, |_| ()), {
                        let base = base.clone();
                        move |sender, ()| {
                            let _ = sender.node_discovered(&base, description(&name));
                            let _ = sender.node_status(&base, NodeStatusData::default());
                        }
                    })
                    .await;
            }
            sleep(HEARTBEAT).await;
        }
    }

    async fn fetch_health_data(&self, base: &NodeId) -> Result<(), DriverError> {
        let id = base.clone();
        let receive = move |sender: &TunnelSender, ()| {
            let _ = sender.node_status(&id, NodeStatusData::default());
        };
        self.send(base, "health", false, |world, base| world.bases.at(base, |_| ()), receive).await
    }

    async fn query_all_container_status_data(&self, base: &NodeId) -> Result<(), DriverError> {
        let id = base.clone();
        let receive = move |sender: &TunnelSender, statuses| {
            let _ = sender.all_container_statuses(&id, statuses);
        };
        let statuses = |base: &mut Base| {
            base.modules.values_mut().for_each(|module| module.asked = true);
            base.modules.iter().map(|(key, module)| status(key, module)).collect()
        };
        self.send(base, "modules", false, move |world, base| world.bases.at(base, statuses), receive).await
    }

    async fn start_container(&self, base: &NodeId, pod: &PodKey, it: &Container) -> Result<(), DriverError> {
        let (id, key, who) =
            (base.clone(), self.get_container_unique_key(pod, it), self.link.replica.clone());
        let answered = key.clone();
        let receive = move |sender: &TunnelSender, result| {
            let _ = sender.start_container_response(&id, answer(answered, result));
        };
        self.send(base, "load", true, move |world, base| world.load(&who, base, &key), receive).await
    }

    async fn shutdown_container(
        &self,
        base: &NodeId,
        pod: &PodKey,
        it: &Container,
    ) -> Result<(), DriverError> {
        let (id, key, who) =
            (base.clone(), self.get_container_unique_key(pod, it), self.link.replica.clone());
        let answered = key.clone();
        let receive = move |sender: &TunnelSender, result| {
            let _ = sender.shutdown_container_response(&id, answer(answered, result));
        };
        self.send(base, "unload", true, move |world, base| world.unload(&who, base, &key), receive).await
    }

    fn get_container_unique_key(&self, _: &PodKey, container: &Container) -> ContainerKey {
        container.name.as_str().into()
    }
}

fn description(name: &str) -> NodeDescription {
    let metadata =
        NodeMetadata { name: name.to_owned(), version: "1".to_owned(), status: NodeActivation::Activated };
    let (network_info, custom_labels) = (NetworkInfo::default(), BTreeMap::new());
    NodeDescription { metadata, network_info, custom_labels, tunnel_data: serde_json::Map::new() }
}

fn status(key: &ContainerKey, module: &Module) -> ContainerStatusData {
    let is_loaded = module.loaded <= Instant::now();
    ContainerStatusData {
        key: key.clone(),
        name: key.to_string(),
        pod_key: PodKey::All,
        state: if is_loaded { ContainerState::Activated } else { ContainerState::Resolved },
        change_time: Time(Timestamp::UNIX_EPOCH),
        reason: String::new(),
        message: String::new(),
    }
}

fn answer(container_key: ContainerKey, result: OperationResponseResult) -> ContainerOperationResponseData {
    let (reason, message) = (String::new(), String::new());
    ContainerOperationResponseData { container_key, result, reason, message, instead: None }
}
