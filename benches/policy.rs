//! `cargo xtask bench policy`: the cost of one change among a thousand pods and a hundred policies.
//!
//! The handler that ships, without a cloud and without queues: the time from an event to the end of all that follows from it,
//! and the calls that the driver then counts. The baseline of the calls is computed here from the shape of the policies, without
//! the product.

#![allow(clippy::cast_precision_loss, reason = "the figures are far below 2^52")]

mod report;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::Resource;
use serde_json::json;
use staffetta_driver::{Owner, PodSecurityGroupsDriver, PodVifDriver, SecurityGroupId, Vif, VifRequest};
use staffetta_handler::{
    AnyEvent, Context, Event, EventHandler, Message, Recorder, Registration, TriggerSender,
};
use staffetta_memory::{
    MemoryNetwork, MemoryNetworkPolicyDriver, MemoryOptions, MemoryVifDriver, NetworkPolicyCall,
};
use staffetta_network::os_vif::{KURYR_VIF, PodState};
use staffetta_network::policy::{AlwaysAllowed, PolicyIndex, PolicySecurityGroups};
use staffetta_network::policy::{PolicyDrivers, PolicyHandler};
use staffetta_network::vif::VifClaims;
use staffetta_pool::NoopVifPool;

use report::{Row, largest, median, milliseconds, publish};

const PODS: usize = 1_000;
const POLICIES: usize = 100;
const NAMESPACES: usize = 10;
/// The number of applications, of which each pod belongs to one.
const APPS: usize = 20;
/// The number of changes measured.
const CHANGES: usize = 200;

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("threads can be started");
    publish("policy", &runtime.block_on(run()));
}

async fn run() -> Vec<Row> {
    let cluster = Cluster::new().await;
    for number in 0..NAMESPACES {
        cluster.apply(namespace(number)).await;
    }
    let began = Instant::now();
    for number in 0..POLICIES {
        cluster.apply(policy(number, &[80, 443])).await;
    }
    let mut vifs = Vec::with_capacity(PODS);
    for number in 0..PODS {
        vifs.push(cluster.wire(number, number % APPS).await);
    }
    let whole = began.elapsed();

    let (mut times, mut sent, mut needed) = (Vec::new(), Sent::default(), 0);
    for (change, vif) in vifs.iter().enumerate().take(CHANGES) {
        let (from, to) = (change % APPS, (change + 7) % APPS);
        let moved = pod(change, to, Some(vif));
        let before = cluster.driver.calls().len();
        let began = Instant::now();
        cluster.apply(moved).await;
        times.push(milliseconds(began.elapsed()));
        sent.add(&cluster.driver.calls()[before..]);
        needed += usize::from(needed_groups(change, to) != needed_groups(change, from));
    }
    let mut rows = labels(whole, &times, &sent, needed);
    rows.extend(ports(&cluster).await);
    rows
}

/// The security groups that the pod of this number needs as a part of `app`, by the semantics of NetworkPolicy and the list of
/// groups in docs/openstack.md: one for each [policy] that selects it, one for each description of peers that fits it, and the
/// common ones. A change of labels needs a call if this set changes.
fn needed_groups(number: usize, app: usize) -> BTreeSet<String> {
    let (namespace, zone) = (number % NAMESPACES, app % 4);
    let (mut groups, mut isolated) = (BTreeSet::new(), BTreeSet::new());
    for policy in 0..POLICIES {
        let here = policy % NAMESPACES == namespace;
        let (own, other) = (policy % APPS == app, (policy + 1) % APPS == app);
        let (selects, direction, peer) = match policy % 5 {
            0 => (true, "ingress", None),
            1 | 2 => (own, "ingress", (here && other).then(|| format!("{app} in {namespace}"))),
            3 => (own, "ingress", (namespace % 3 == 1 && other).then(|| format!("{app} in team 1"))),
            _ => ([1, 2].contains(&zone), "egress", Some("every pod".to_owned())),
        };
        groups.extend(peer.map(|peer| format!("peer: {peer}")));
        if here && selects {
            groups.insert(format!("policy: {policy}"));
            isolated.insert(direction);
        }
    }
    // Nodes are allowed in front of an isolated pod; the direction in which it is not isolated is open.
    groups.extend(isolated.into_iter().map(|direction| format!("isolated: {direction}")));
    groups
}

/// The cost of label changes, of which `needed` give their pods other groups.
fn labels(whole: Duration, times: &[f64], sent: &Sent, needed: usize) -> Vec<Row> {
    let (typical, worst) = (median(times.to_vec()), largest(times));
    vec![
        Row::new(
            format!("{POLICIES} policies and {PODS} pods, one after the other"),
            "ms",
            milliseconds(whole),
        ),
        Row::new("one label change, median", "ms", typical).goal("< 10", typical < 10.0),
        Row::new("one label change, the slowest", "ms", worst).goal("< 10", worst < 10.0),
        Row::new(format!("calls for {CHANGES} label changes"), "1", sent.calls as f64)
            .against(needed as f64)
            .goal("one for each that changes groups", sent.calls == needed && sent.guards == needed),
        Row::new("rules sent for these label changes", "1", sent.rules() as f64)
            .goal("= 0", sent.rules() == 0),
    ]
}

/// Measures a policy, selecting the pods of one application, that opens one more port and closes it again.
async fn ports(cluster: &Cluster) -> Vec<Row> {
    let held: usize = {
        let groups = cluster.network.security_groups();
        let own = groups.iter().find(|group| group.name.as_str() == "policy-policy-1");
        own.map_or(0, |group| group.rules.len())
    };
    let mut rows = Vec::new();
    for (words, ports, expected) in [
        ("rules sent when a policy gains one port", &[80, 443, 8443][..], (0, 2)),
        ("rules sent when it loses that port", &[80, 443], (2, 0)),
    ] {
        let before = cluster.driver.calls().len();
        cluster.apply(policy(1, ports)).await;
        let mut sent = Sent::default();
        sent.add(&cluster.driver.calls()[before..]);
        let just_these = sent.calls == 1 && (sent.removed, sent.added) == expected;
        rows.push(
            Row::new(words, "1", sent.rules() as f64)
                .against(held as f64)
                .goal("one call, one rule for each version of IP", just_these),
        );
    }
    rows
}

/// The requests sent.
#[derive(Default)]
struct Sent {
    /// The calls that change something.
    calls: usize,
    /// Those that put groups in front of a VIF.
    guards: usize,
    /// Rules.
    removed: usize,
    added: usize,
}

impl Sent {
    fn add(&mut self, calls: &[NetworkPolicyCall]) {
        for call in calls {
            match call {
                NetworkPolicyCall::Groups | NetworkPolicyCall::VifGroups => continue,
                NetworkPolicyCall::SetVifGroups(_) => self.guards += 1,
                NetworkPolicyCall::UpdateRules(_, removed, added) => {
                    self.removed += removed;
                    self.added += added;
                }
                NetworkPolicyCall::CreateGroup(_) | NetworkPolicyCall::DeleteGroup(_) => {}
            }
            self.calls += 1;
        }
    }

    fn rules(&self) -> usize {
        self.removed + self.added
    }
}

/// A cluster on a simulated network, and the handler of its policies.
struct Cluster {
    network: Arc<MemoryNetwork>,
    driver: Arc<MemoryNetworkPolicyDriver>,
    vifs: MemoryVifDriver,
    groups: PolicySecurityGroups,
    claims: Arc<VifClaims>,
    handler: Registration,
}

impl Cluster {
    async fn new() -> Self {
        let network = Arc::new(MemoryNetwork::new(MemoryOptions::default()));
        let driver = Arc::new(MemoryNetworkPolicyDriver::new(Arc::clone(&network), "bench".into()));
        let vifs = MemoryVifDriver::new(Arc::clone(&network), "bench".into());
        let index = Arc::new(PolicyIndex::new(vec!["default".into()], AlwaysAllowed::default()));
        let groups = PolicySecurityGroups::new(Arc::clone(&index), false);
        let pool = NoopVifPool::new(Arc::new(MemoryVifDriver::new(Arc::clone(&network), "bench".into())));
        let drivers = PolicyDrivers { policy: Arc::clone(&driver) as _, pool: Arc::new(pool) };
        let claims = Arc::<VifClaims>::default();
        let handler = PolicyHandler::new(drivers, Arc::clone(&claims), index, Recorder::silent());
        let handler = handler.registration().erase();
        let sweep = handler.collector.as_ref().expect("the handler has a sweep");
        sweep.recover().await.expect("the simulated network answers");
        Self { network, driver, vifs, groups, claims, handler }
    }

    /// A pod comes, gets its VIF with the groups that it ought to have, and shows it.
    async fn wire(&self, number: usize, app: usize) -> Vif {
        let bare = pod(number, app, None);
        self.apply(bare.clone()).await;
        let cidrs = &self.network.options().pod_subnets;
        let request = VifRequest {
            owner: Owner::of(&bare.metadata),
            node_name: "n1".into(),
            host_ip: None,
            project: "memory".into(),
            subnets: cidrs.iter().map(|cidr| self.network.subnet(*cidr)).collect(),
            security_groups: self.wanted(&bare).await,
        };
        let vif = self.vifs.request_vif(&request).await.expect("there are addresses");
        self.claims.set_verified(&Owner::of(&bare.metadata).uid, std::slice::from_ref(&vif));
        self.apply(pod(number, app, Some(&vif))).await;
        vif
    }

    /// The groups that the pod ought to have.
    async fn wanted(&self, pod: &Pod) -> Vec<SecurityGroupId> {
        let groups = self.groups.security_groups(pod, &"memory".into()).await;
        groups.expect("all groups are there")
    }

    /// Handles a new or changed object, and all that follows from it.
    async fn apply<K>(&self, object: K)
    where
        K: Resource<DynamicType = ()> + Send + Sync + 'static,
    {
        let event = Event::Modified(Arc::new(object)).erase();
        for index in self.handler.indexes.iter().filter(|index| index.kind.type_id == event.route()) {
            (index.apply)(&event).expect("it does not panic");
        }
        self.handle(&event).await;
        loop {
            let due = self.due().await;
            if due.is_empty() {
                return;
            }
            for trigger in &due {
                self.handle(trigger).await;
            }
        }
    }

    async fn handle(&self, event: &AnyEvent) {
        if self.handler.wants(event).is_taken() {
            self.handler
                .handle(&self.handler.resolve(event), &Context::detached())
                .await
                .expect("the simulated network does all");
        }
    }

    /// The triggers that the handler's source has sent so far.
    async fn due(&self) -> Vec<AnyEvent> {
        let triggers = Arc::new(Mutex::new(Vec::new()));
        let taken = Arc::clone(&triggers);
        let sender = TriggerSender::new(move |trigger| lock(&taken).push(trigger));
        for source in &self.handler.sources {
            tokio::select! {
                biased;
                ended = source.run(sender.clone()) => panic!("a source ended: {ended:?}"),
                // The source lets other tasks run after each slice of pods.
                () = async { for _ in 0..2 * PODS / 64 { tokio::task::yield_now().await } } => {}
            }
        }
        std::mem::take(&mut lock(&triggers))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn namespace(number: usize) -> Namespace {
    let meta = json!({ "metadata": { "name": format!("ns-{number}"), "uid": format!("ns-{number}"),
        "labels": { "team": format!("t{}", number % 3) } } });
    serde_json::from_value(meta).expect("it is a namespace")
}

fn pod(number: usize, app: usize, vif: Option<&Vif>) -> Pod {
    let mut meta = json!({ "namespace": format!("ns-{}", number % NAMESPACES), "name": format!("pod-{number}"),
        "uid": format!("pod-{number}"), "labels": { "app": format!("a{app}"), "zone": format!("z{}", app % 4) } });
    if let Some(vif) = vif {
        meta["annotations"] = json!({ KURYR_VIF: PodState::new(vif.clone()).write() });
    }
    let spec = json!({ "nodeName": "n1",
        "containers": [{ "name": "c", "ports": [{ "name": "http", "containerPort": 8080 }] }] });
    serde_json::from_value(json!({ "metadata": meta, "spec": spec })).expect("it is a pod")
}

/// Policies of the usual kinds: a default deny, an application that admits another one to `ports`, one that admits other
/// namespaces.
fn policy(number: usize, ports: &[u16]) -> NetworkPolicy {
    let (own, other) = (format!("a{}", number % APPS), format!("a{}", (number + 1) % APPS));
    let spec = match number % 5 {
        0 => json!({ "podSelector": {}, "policyTypes": ["Ingress"] }),
        1 | 2 => json!({ "podSelector": { "matchLabels": { "app": own } },
            "ingress": [{ "from": [{ "podSelector": { "matchLabels": { "app": other } } }],
                "ports": ports.iter().map(|port| json!({ "port": port })).collect::<Vec<_>>() }] }),
        3 => json!({ "podSelector": { "matchLabels": { "app": own } },
            "ingress": [{ "from": [{ "namespaceSelector": { "matchLabels": { "team": "t1" } },
                "podSelector": { "matchLabels": { "app": other } } }], "ports": [{ "port": 8080, "endPort": 8090 }] }] }),
        _ => {
            json!({ "podSelector": { "matchExpressions": [{ "key": "zone", "operator": "In", "values": ["z1", "z2"] }] },
            "policyTypes": ["Egress"], "egress": [{ "to": [{ "namespaceSelector": {} }, { "ipBlock": {
                "cidr": "0.0.0.0/0", "except": ["10.0.0.0/8"] } }] }] })
        }
    };
    let meta = json!({ "namespace": format!("ns-{}", number % NAMESPACES), "name": format!("p{number}"),
        "uid": format!("policy-{number}") });
    serde_json::from_value(json!({ "metadata": meta, "spec": spec })).expect("it is a policy")
}
