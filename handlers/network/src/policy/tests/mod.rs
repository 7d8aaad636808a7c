//! The handler against the simulated network.

mod faults;
mod life;
mod sweep;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::policy::{AlwaysAllowed, PolicyIndex, PolicySecurityGroups};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use parking_lot::Mutex;
use serde_json::{Value, json};
use staffetta_driver::{Owner, PodSecurityGroupsDriver, Vif, VifPoolDriver, VifRequest};
use staffetta_handler::{Event, Index, Tombstone, deliver};
use staffetta_memory::{
    MemoryNetwork, MemoryNetworkPolicyDriver, MemoryOptions, MemoryVifDriver, NetworkPolicyCall,
};
use staffetta_pool::NoopVifPool;

use super::*;
use crate::os_vif::{KURYR_VIF, PodState};
use crate::owners::identity;

/// Keeps the reason and text of all Events.
#[derive(Clone, Default)]
struct RecordedTexts(Arc<Mutex<Vec<String>>>);

impl RecordedTexts {
    fn recorder(&self) -> Recorder {
        let texts = Arc::clone(&self.0);
        Recorder::new(move |note| texts.lock().push(format!("{}: {}", note.reason, note.text)))
    }
}

/// A cluster on a simulated network.
struct World {
    network: Arc<MemoryNetwork>,
    driver: Arc<MemoryNetworkPolicyDriver>,
    pool: Arc<dyn VifPoolDriver>,
    index: Arc<PolicyIndex>,
    claims: Arc<VifClaims>,
    handler: PolicyHandler,
    recorded: RecordedTexts,
}

impl World {
    /// Creates a world whose handler has recovered.
    async fn new() -> Self {
        let world = Self::on(Arc::new(MemoryNetwork::new(MemoryOptions::default())));
        world.begin().await;
        world
    }

    /// Recovers the handler, which reconciles the common groups as with the event of a node, and adds
    /// the namespace.
    async fn begin(&self) {
        self.handler.recover().await.unwrap();
        self.handler.reconcile_common().await.unwrap();
        self.namespace("shop", &json!({ "team": "shop" }));
    }

    /// Creates a world with an existing network.
    fn on(network: Arc<MemoryNetwork>) -> Self {
        let vifs = MemoryVifDriver::new(Arc::clone(&network), "east".into());
        Self::behind(network, Arc::new(NoopVifPool::new(Arc::new(vifs))))
    }

    /// Creates a world with an existing network and this VIF pool.
    fn behind(network: Arc<MemoryNetwork>, pool: Arc<dyn VifPoolDriver>) -> Self {
        let driver = Arc::new(MemoryNetworkPolicyDriver::new(Arc::clone(&network), "east".into()));
        let index = Arc::new(PolicyIndex::new(vec!["default".into()], AlwaysAllowed::default()));
        let (recorded, claims) = (RecordedTexts::default(), Arc::<VifClaims>::default());
        let drivers = PolicyDrivers { policy: Arc::clone(&driver) as _, pool: Arc::clone(&pool) };
        let handler =
            PolicyHandler::new(drivers, Arc::clone(&claims), Arc::clone(&index), recorded.recorder());
        Self { network, driver, pool, index, claims, handler, recorded }
    }

    fn namespace(&self, name: &str, labels: &Value) {
        let namespace =
            json!({ "metadata": { "name": name, "uid": format!("ns-{name}"), "labels": labels } });
        let namespace: Namespace = serde_json::from_value(namespace).unwrap();
        NamespaceObserver::present(&*self.index, &namespace);
    }

    /// Creates or changes a policy and handles all consequences.
    async fn policy(&self, name: &str, spec: &Value) -> Result<(), PolicyError> {
        let policy = policy(name, spec);
        NetworkPolicyObserver::present(&*self.index, &policy);
        deliver(&self.handler, &Event::Modified(Arc::new(policy))).await?;
        self.follow().await
    }

    async fn no_policy(&self, name: &str) -> Result<(), PolicyError> {
        let policy = policy(name, &json!({}));
        NetworkPolicyObserver::gone(&*self.index, &Owner::of(&policy.metadata).uid);
        // Pods and groups are handled in different queues.
        self.follow().await?;
        deliver(&self.handler, &Event::Deleted(Tombstone::Last(Arc::new(policy)))).await?;
        self.follow().await
    }

    /// Creates a pod with its VIF, as the handler `vif` does.
    async fn pod(&self, name: &str, labels: &Value) -> Vif {
        let bare = pod(name, labels, None);
        self.index.set_pod(&bare);
        self.follow().await.unwrap();
        let groups = PolicySecurityGroups::new(Arc::clone(&self.index), false);
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

    /// Publishes the VIF of a pod and handles all consequences.
    async fn shows(&self, name: &str, labels: &Value, vif: &Vif) -> Result<(), PolicyError> {
        self.claims.set_verified(&format!("uid-{name}").into(), std::slice::from_ref(vif));
        self.shows_unverified(name, labels, vif).await
    }

    /// Publishes a VIF that the handler `vif` has not verified, and handles all consequences.
    async fn shows_unverified(&self, name: &str, labels: &Value, vif: &Vif) -> Result<(), PolicyError> {
        let event = Event::Modified(Arc::new(pod(name, labels, Some(vif))));
        Index::<Pod>::apply(&*self.index, &event);
        deliver(&self.handler, &event).await?;
        self.follow().await
    }

    /// Deletes a pod; its VIF stays.
    async fn no_pod(&self, name: &str) {
        let event = Event::Deleted(Tombstone::Last(Arc::new(pod(name, &json!({}), None))));
        Index::<Pod>::apply(&*self.index, &event);
        self.claims.forget(&format!("uid-{name}").into());
        self.follow().await.unwrap();
    }

    /// Handles all changes of the index.
    async fn follow(&self) -> Result<(), PolicyError> {
        loop {
            let changes = self.index.take_changes();
            if changes.pods.is_empty() && changes.policies.is_empty() {
                return Ok(());
            }
            for policy in changes.policies {
                self.handler.on_trigger(&PolicyRecheck(identity::<NetworkPolicy>(policy))).await?;
            }
            for pod in changes.pods {
                self.handler.on_trigger(&PolicyRecheck(identity::<Pod>(pod))).await?;
            }
        }
    }

    /// Returns the names of the groups of a VIF.
    fn groups_of(&self, vif: &Vif) -> BTreeSet<String> {
        let groups = self.network.security_groups();
        let name = |id: &staffetta_driver::SecurityGroupId| {
            let group = groups.iter().find(|group| group.id == *id);
            group.map_or_else(|| id.to_string(), |group| group.name.to_string())
        };
        self.network.port(&vif.id).unwrap().security_groups.iter().map(name).collect()
    }

    /// Returns the names of the existing groups without the common ones.
    fn groups(&self) -> BTreeSet<String> {
        let groups = self.network.security_groups().into_iter().map(|group| group.name.to_string());
        groups.filter(|name| !["nodes", "open-egress", "open-ingress"].contains(&name.as_str())).collect()
    }

    /// Returns the rules of the group of a policy, as text.
    fn rules(&self, name: &str) -> Vec<String> {
        let group = self.network.security_groups().into_iter().find(|group| group.name.as_str() == name);
        let rules = group.unwrap().rules.into_iter().map(|held| format!("{:?}", held.rule.unwrap()));
        rules.collect()
    }

    /// Returns the changing calls after the first `before` calls.
    fn changes(&self, before: usize) -> Vec<NetworkPolicyCall> {
        let changes = |call: &NetworkPolicyCall| {
            !matches!(call, NetworkPolicyCall::Groups | NetworkPolicyCall::VifGroups)
        };
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

/// Returns a policy that allows ingress to `app: db` from pods with this label.
fn admits(label: &str) -> Value {
    json!({ "podSelector": { "matchLabels": { "app": "db" } },
        "ingress": [{ "from": [{ "podSelector": { "matchLabels": { "app": label } } }] }] })
}
