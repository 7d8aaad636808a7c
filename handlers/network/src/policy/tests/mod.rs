//! The handler against the simulated network.

mod faults;
mod life;
mod sweep;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use serde_json::{Value, json};
use staffetta_driver::memory::{
    MemoryNetwork, MemoryNetworkPolicyDriver, MemoryOptions, MemoryVifDriver, NetworkPolicyCall,
};
use staffetta_driver::policy::{AlwaysAllowed, PolicyBook, PolicySecurityGroups};
use staffetta_driver::{NoopPool, Owner, PodSecurityGroupsDriver, Vif, VifPoolDriver, VifRequest};
use staffetta_handler::{Event, Note, Notebook, Tombstone, deliver};

use super::*;
use crate::os_vif::{KURYR_VIF, PodState};

/// What was told at objects.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<String>>>);

impl Notebook for Told {
    fn tell(&self, note: Note) {
        self.0.lock().unwrap().push(format!("{}: {}", note.reason, note.text));
    }
}

/// A cluster on a simulated network.
struct World {
    network: Arc<MemoryNetwork>,
    driver: Arc<MemoryNetworkPolicyDriver>,
    pool: Arc<dyn VifPoolDriver>,
    book: Arc<PolicyBook>,
    handler: PolicyHandler,
    told: Told,
}

impl World {
    /// With a handler that has read its marks.
    async fn new() -> Self {
        let world = Self::on(Arc::new(MemoryNetwork::new(MemoryOptions::default())));
        world.begin().await;
        world
    }

    /// The marks are read, and the namespace is there.
    async fn begin(&self) {
        self.handler.recover().await.unwrap();
        self.namespace("shop", &json!({ "team": "shop" }));
    }

    /// A process that has just started.
    fn on(network: Arc<MemoryNetwork>) -> Self {
        let vifs = MemoryVifDriver::new(Arc::clone(&network), "east".into());
        Self::behind(network, Arc::new(NoopPool::new(Arc::new(vifs))))
    }

    /// A process that has just started, whose pods get their VIFs from this pool.
    fn behind(network: Arc<MemoryNetwork>, pool: Arc<dyn VifPoolDriver>) -> Self {
        let driver = Arc::new(MemoryNetworkPolicyDriver::new(Arc::clone(&network), "east".into()));
        let book = Arc::new(PolicyBook::new(vec!["default".into()], AlwaysAllowed::default()));
        let told = Told::default();
        let drivers = PolicyDrivers { policy: Arc::clone(&driver) as _, pool: Arc::clone(&pool) };
        let handler = PolicyHandler::new(drivers, Arc::clone(&book), Notes::new(told.clone()));
        Self { network, driver, pool, book, handler, told }
    }

    fn namespace(&self, name: &str, labels: &Value) {
        let namespace =
            json!({ "metadata": { "name": name, "uid": format!("ns-{name}"), "labels": labels } });
        let namespace: Namespace = serde_json::from_value(namespace).unwrap();
        NamespaceObserver::present(&*self.book, &namespace);
    }

    /// A policy of the shop is there, and all that follows is done.
    async fn policy(&self, name: &str, spec: &Value) -> Result<(), PolicyError> {
        let policy = policy(name, spec);
        NetworkPolicyObserver::present(&*self.book, &policy);
        deliver(&self.handler, &Event::Modified(Arc::new(policy))).await?;
        self.follow().await
    }

    async fn no_policy(&self, name: &str) -> Result<(), PolicyError> {
        let policy = policy(name, &json!({}));
        NetworkPolicyObserver::gone(&*self.book, &Owner::of(&policy.metadata).uid);
        // What it means for pods comes about beside what it means for groups.
        self.follow().await?;
        deliver(&self.handler, &Event::Deleted(Tombstone::Last(Arc::new(policy)))).await?;
        self.follow().await
    }

    /// A pod of the shop gets its VIF, as the handler `vif` does it.
    async fn pod(&self, name: &str, labels: &Value) -> Vif {
        let bare = pod(name, labels, None);
        self.handler.guards.apply(&Event::Added(Arc::new(bare.clone())));
        self.follow().await.unwrap();
        let groups = PolicySecurityGroups::new(Arc::clone(&self.book), false);
        let groups = groups.security_groups(&bare, &"memory".into()).await.unwrap();
        let request = VifRequest {
            owner: Owner::of(&bare.metadata),
            node_name: "n1".into(),
            host_ip: None,
            project: "memory".into(),
            subnets: self
                .network
                .options()
                .pod_subnets
                .iter()
                .map(|cidr| self.network.subnet(*cidr))
                .collect(),
            security_groups: groups,
        };
        let vif = self.pool.request_vif(&request).await.unwrap();
        self.shows(name, labels, &vif).await.unwrap();
        vif
    }

    /// A pod of the shop shows its VIF, and all that follows is done.
    async fn shows(&self, name: &str, labels: &Value, vif: &Vif) -> Result<(), PolicyError> {
        let event = Event::Modified(Arc::new(pod(name, labels, Some(vif))));
        self.handler.guards.apply(&event);
        deliver(&self.handler, &event).await?;
        self.follow().await
    }

    /// A pod is gone; its VIF stays for whoever comes.
    async fn no_pod(&self, name: &str) {
        let event = Event::Deleted(Tombstone::Last(Arc::new(pod(name, &json!({}), None))));
        self.handler.guards.apply(&event);
        self.follow().await.unwrap();
    }

    /// Does what is due, until nothing is.
    async fn follow(&self) -> Result<(), PolicyError> {
        loop {
            let due = self.book.take_due();
            if due.pods.is_empty() && due.policies.is_empty() {
                return Ok(());
            }
            for policy in due.policies {
                self.handler.on_signal(&Moved::of::<NetworkPolicy>(policy)).await?;
            }
            for pod in due.pods {
                self.handler.on_signal(&Moved::of::<Pod>(pod)).await?;
            }
        }
    }

    /// The names of the groups of a VIF.
    fn groups_of(&self, vif: &Vif) -> BTreeSet<String> {
        let groups = self.network.security_groups();
        let name = |id: &staffetta_driver::SecurityGroupId| {
            let group = groups.iter().find(|group| group.id == *id);
            group.map_or_else(|| id.to_string(), |group| group.name.to_string())
        };
        self.network.port(&vif.id).unwrap().security_groups.iter().map(name).collect()
    }

    /// The names of the groups that there are, but for the common ones.
    fn groups(&self) -> BTreeSet<String> {
        let groups = self.network.security_groups().into_iter().map(|group| group.name.to_string());
        groups.filter(|name| !["nodes", "open-egress", "open-ingress"].contains(&name.as_str())).collect()
    }

    /// The rules of the group of a policy, as text.
    fn rules(&self, name: &str) -> Vec<String> {
        let group = self.network.security_groups().into_iter().find(|group| group.name.as_str() == name);
        let rules = group.unwrap().rules.into_iter().map(|held| format!("{:?}", held.rule.unwrap()));
        rules.collect()
    }

    /// The calls that change something, since the last look.
    fn changes(&self, before: usize) -> Vec<NetworkPolicyCall> {
        let changes =
            |call: &NetworkPolicyCall| !matches!(call, NetworkPolicyCall::Groups | NetworkPolicyCall::Guards);
        self.driver.calls().split_off(before).into_iter().filter(changes).collect()
    }

    fn calls(&self) -> usize {
        self.driver.calls().len()
    }
}

fn policy(name: &str, spec: &Value) -> NetworkPolicy {
    let meta = json!({ "namespace": "shop", "name": name, "uid": format!("uid-{name}") });
    serde_json::from_value(json!({ "metadata": meta, "spec": spec })).unwrap()
}

fn pod(name: &str, labels: &Value, vif: Option<&Vif>) -> Pod {
    let mut meta =
        json!({ "namespace": "shop", "name": name, "uid": format!("uid-{name}"), "labels": labels });
    if let Some(vif) = vif {
        let state = PodState::new(vif.clone());
        meta["annotations"] = json!({ KURYR_VIF: state.write() });
    }
    let spec = json!({ "nodeName": "n1", "containers": [{ "name": "a",
        "ports": [{ "name": "http", "containerPort": 80 }] }] });
    serde_json::from_value(json!({ "metadata": meta, "spec": spec })).unwrap()
}

fn node(name: &str, address: &str) -> Node {
    let status = json!({ "addresses": [{ "type": "InternalIP", "address": address }] });
    serde_json::from_value(json!({ "metadata": { "name": name, "uid": name }, "status": status })).unwrap()
}

/// Lets pods of the shop with this label in, where `app: db` is.
fn admits(label: &str) -> Value {
    json!({ "podSelector": { "matchLabels": { "app": "db" } },
        "ingress": [{ "from": [{ "podSelector": { "matchLabels": { "app": label } } }] }] })
}
