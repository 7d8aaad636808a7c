//! `cargo bench --bench policy`: what one change means for a thousand pods and a hundred policies.
//!
//! The handler that ships, without a cloud and without queues: the time from an event to the end of all that follows from it,
//! and the calls that are then made, as the driver counts them.

#![allow(clippy::cast_precision_loss, reason = "the figures are far below 2^52")]

mod report;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::Resource;
use serde_json::json;
use staffetta_driver::memory::{
    MemoryNetwork, MemoryNetworkPolicyDriver, MemoryOptions, MemoryVifDriver, NetworkPolicyCall,
};
use staffetta_driver::policy::{AlwaysAllowed, PolicyBook, PolicySecurityGroups};
use staffetta_driver::{
    NoopPool, Owner, PodSecurityGroupsDriver, PodVifDriver, SecurityGroupId, Vif, VifRequest,
};
use staffetta_handler::{
    AnyEvent, ErasedHandler, ErasedSource, Event, EventHandler, KindIndex, Message, Notes, Outlet, Turn,
};
use staffetta_network::os_vif::{KURYR_VIF, PodState};
use staffetta_network::policy::{PolicyDrivers, PolicyHandler};

use report::{Row, median, tell};

const PODS: usize = 1_000;
const POLICIES: usize = 100;
const NAMESPACES: usize = 10;
/// How many changes are measured.
const CHANGES: usize = 200;

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("threads can be started");
    tell("policy", &runtime.block_on(run()));
}

async fn run() -> Vec<Row> {
    let cluster = Cluster::new().await;
    for number in 0..NAMESPACES {
        cluster.tell(namespace(number)).await;
    }
    let began = Instant::now();
    for number in 0..POLICIES {
        cluster.tell(policy(number, &[80, 443])).await;
    }
    let mut vifs = Vec::with_capacity(PODS);
    for number in 0..PODS {
        vifs.push(cluster.wire(number, number % 20).await);
    }
    let whole = began.elapsed();

    let (mut times, mut sent, mut needed) = (Vec::new(), Sent::default(), 0);
    for (change, vif) in vifs.iter().enumerate().take(CHANGES) {
        let was = cluster.wanted(&pod(change, change % 20, None)).await;
        let moved = pod(change, (change + 7) % 20, Some(vif));
        let before = cluster.driver.calls().len();
        let began = Instant::now();
        cluster.tell(moved.clone()).await;
        times.push(milliseconds(began.elapsed()));
        sent.add(&cluster.driver.calls()[before..]);
        needed += usize::from(cluster.wanted(&moved).await != was);
    }
    let mut rows = labels(whole, &times, &sent, needed);
    rows.extend(ports(&cluster).await);
    rows
}

/// What changes of labels cost, of which so many give their pods other groups.
fn labels(whole: Duration, times: &[f64], sent: &Sent, needed: usize) -> Vec<Row> {
    let typical = median(times.to_vec());
    let worst = times.iter().copied().fold(0.0, f64::max);
    vec![
        Row::new(
            format!("{POLICIES} policies and {PODS} pods, one after the other"),
            "ms",
            milliseconds(whole),
        ),
        Row::new("one label change, median", "ms", typical).goal("< 10", typical < 10.0),
        Row::new("one label change, the slowest", "ms", worst).goal("< 10", worst < 10.0),
        Row::new(format!("calls for {CHANGES} label changes"), "", sent.calls as f64)
            .against(needed as f64)
            .goal("one for each that changes groups", sent.calls == needed && sent.guards == needed),
        Row::new("rules sent for these label changes", "", sent.rules() as f64)
            .goal("= 0", sent.rules() == 0),
    ]
}

/// What it costs that a policy, which selects pods of one application, opens one more port and closes it again.
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
        cluster.tell(policy(1, ports)).await;
        let mut sent = Sent::default();
        sent.add(&cluster.driver.calls()[before..]);
        let just_these = sent.calls == 1 && (sent.removed, sent.added) == expected;
        rows.push(
            Row::new(words, "", sent.rules() as f64)
                .against(held as f64)
                .goal("one call, one rule for each version of IP", just_these),
        );
    }
    rows
}

/// What was sent.
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
                NetworkPolicyCall::Groups | NetworkPolicyCall::Guards => continue,
                NetworkPolicyCall::Guard(_) => self.guards += 1,
                NetworkPolicyCall::Change(_, removed, added) => {
                    self.removed += removed;
                    self.added += added;
                }
                NetworkPolicyCall::Make(_) | NetworkPolicyCall::Remove(_) => {}
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
    handler: ErasedHandler,
    indexes: Vec<KindIndex>,
    sources: Vec<Box<dyn ErasedSource>>,
}

impl Cluster {
    async fn new() -> Self {
        let network = Arc::new(MemoryNetwork::new(MemoryOptions::default()));
        let driver = Arc::new(MemoryNetworkPolicyDriver::new(Arc::clone(&network), "bench".into()));
        let vifs = MemoryVifDriver::new(Arc::clone(&network), "bench".into());
        let book = Arc::new(PolicyBook::new(vec!["default".into()], AlwaysAllowed::default()));
        let groups = PolicySecurityGroups::new(Arc::clone(&book), false);
        let pool = NoopPool::new(Arc::new(MemoryVifDriver::new(Arc::clone(&network), "bench".into())));
        let drivers = PolicyDrivers { policy: Arc::clone(&driver) as _, pool: Arc::new(pool) };
        let handler = PolicyHandler::new(drivers, book, Notes::silent());
        let mut registration = handler.registration().erase();
        let sources = registration.take_sources();
        let (handler, indexes, sweep) = registration.into_parts();
        sweep.expect("the handler has a sweep").recover().await.expect("the simulated network answers");
        Self { network, driver, vifs, groups, handler, indexes, sources }
    }

    /// A pod comes, gets its VIF with the groups that it ought to have, and shows it.
    async fn wire(&self, number: usize, app: usize) -> Vif {
        let bare = pod(number, app, None);
        self.tell(bare.clone()).await;
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
        self.tell(pod(number, app, Some(&vif))).await;
        vif
    }

    /// The groups that the pod ought to have.
    async fn wanted(&self, pod: &Pod) -> Vec<SecurityGroupId> {
        let groups = self.groups.security_groups(pod, &"memory".into()).await;
        groups.expect("all groups are there")
    }

    /// An object came or changed; all that follows is done.
    async fn tell<K>(&self, object: K)
    where
        K: Resource<DynamicType = ()> + Send + Sync + 'static,
    {
        let event = Event::Modified(Arc::new(object)).erase();
        for index in self.indexes.iter().filter(|index| index.kind.type_id == event.route()) {
            (index.apply)(&event);
        }
        self.handle(&event).await;
        loop {
            let due = self.due().await;
            if due.is_empty() {
                return;
            }
            for signal in &due {
                self.handle(signal).await;
            }
        }
    }

    async fn handle(&self, event: &AnyEvent) {
        if self.handler.wants(event) {
            self.handler.handle(event, &Turn::alone()).await.expect("the simulated network does all");
        }
    }

    /// What the handler's source signals by now.
    async fn due(&self) -> Vec<AnyEvent> {
        let signals = Arc::new(Mutex::new(Vec::new()));
        let taken = Arc::clone(&signals);
        let outlet = Outlet::new(move |signal| lock(&taken).push(signal));
        for source in &self.sources {
            tokio::select! {
                biased;
                ended = source.run(outlet.clone()) => panic!("a source ended: {ended:?}"),
                () = async {} => {}
            }
        }
        std::mem::take(&mut lock(&signals))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
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
    let (own, other) = (format!("a{}", number % 20), format!("a{}", (number + 1) % 20));
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
