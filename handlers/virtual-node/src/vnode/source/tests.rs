//! Tests of the node source without a cluster.

use http::{Method, Request, Response, StatusCode};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use staffetta_driver::tunnel::{NodeStatusData, TunnelEvent};
use staffetta_handler::{Event, Index, Tombstone};
use tokio::sync::mpsc;

use super::*;
use crate::handler::tests::dependencies;
use crate::policy::Policy;
use crate::vnode::known::tests::{NoTunnel, described};
use crate::vnode::lease::{LeaseTiming, SeenLease};
use crate::vnode::tracker::TrackerPolicy;

/// A Lease whose renewal is always due.
const TIMING: LeaseTiming =
    LeaseTiming { duration: Duration::from_secs(3600), renewal: Duration::ZERO, retry: Duration::ZERO };

/// Sends the path of a request when the request is given up.
struct GivenUp(String, mpsc::UnboundedSender<String>);

impl Drop for GivenUp {
    fn drop(&mut self) {
        let _ = self.1.send(format!("given up {}", self.0));
    }
}

/// Returns a client of an API server that answers writes to the Lease of `answered`, and no others, and the requests.
pub(in crate::vnode) fn client(answered: &'static str) -> (Client, mpsc::UnboundedReceiver<String>) {
    let (log, requests) = mpsc::unbounded_channel();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (name, log) = (request.uri().path().rsplit('/').next().unwrap().to_owned(), log.clone());
        async move {
            log.send(format!("{} {name}", request.method())).unwrap();
            if name != answered || request.method() != Method::PUT {
                let _given_up = GivenUp(name, log);
                std::future::pending::<()>().await;
            }
            let mut lease: Value =
                serde_json::from_slice(&request.into_body().collect_bytes().await.unwrap()).unwrap();
            let version = lease["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
            lease["metadata"]["resourceVersion"] = json!((version + 1).to_string());
            let body = Body::from(serde_json::to_vec(&lease).unwrap());
            let response = Response::builder().status(StatusCode::OK).body(body).unwrap();
            Ok::<_, std::convert::Infallible>(response)
        }
    });
    (Client::new(service, "default"), requests)
}

/// Returns a source that holds the Leases of these bases, and the store with their nodes.
pub(in crate::vnode) async fn source(client: Client, ids: &[&str]) -> (VnodeSource, Arc<NodeStore>) {
    source_of(client, ids, Arc::default()).await
}

/// Returns a source with this tunnel that holds the Leases of these bases, and the store with their nodes.
async fn source_of(client: Client, ids: &[&str], tunnel: Arc<NoTunnel>) -> (VnodeSource, Arc<NodeStore>) {
    let template = NodeTemplate { environment: "dev".to_owned(), max_pods: 9 };
    let tracker =
        OperationTracker::new(TrackerPolicy::default(), staffetta_handler::Recorder::silent(), |_| {});
    let source = VnodeSource {
        cluster: "east".to_owned(),
        replica: "ours".to_owned(),
        template,
        operation_limit: Duration::from_secs(330),
        unowned_grace: None,
        tunnels: vec![NamedTunnel { name: "none".into(), tunnel }],
        leases: Arc::default(),
        writer: LeaseWriter::new(client, "ours".to_owned(), 3600, std::collections::BTreeMap::new()).into(),
        baselines: Arc::new(PeerIndex::new("dev")),
        sent_baselines: Arc::default(),
        tracker,
        counts: dependencies().metrics.counts("vnode"),
        bases: Mutex::new(KnownBases::new("ours".to_owned(), TIMING, Duration::from_secs(3600))),
        nodes: OnceLock::new(),
    };
    let nodes = Arc::new(NodeStore::new(Arc::default(), Policy::default()));
    let now = BootTime::now();
    for id in ids {
        let names = source.names(&id.parse().unwrap());
        let node = Arc::clone(&names.1);
        let mut bases = source.bases.lock();
        assert!(bases.introduced(names, 0, &described("ACTIVATED"), Instant::now()));
        let known = bases.get_mut(&node).unwrap();
        known.election.begin(now);
        let held = SeenLease::held(1, "ours");
        known.election.finish(&WriteResult::First(held), now);
    }
    source.apply_lease_changes(&nodes).await;
    for id in ids {
        let answer = TunnelEvent::NodeStatus(NodeStatusData::default());
        source.process_event(0, &id.parse().unwrap(), answer, &nodes).await;
    }
    assert!(ids.iter().all(|id| nodes.contains(&source.names(&id.parse().unwrap()).1)));
    (source, nodes)
}

#[tokio::test(start_paused = true)]
async fn nodes_that_end_while_the_api_server_does_not_answer_delay_no_renewal() {
    let (client, mut requests) = client("vnode.lives.dev");
    let (source, nodes) = source(client, &["lives", "one", "two", "three"]).await;
    for gone in ["vnode.one.dev", "vnode.two.dev", "vnode.three.dev"] {
        nodes.remove(gone);
        // Its Node object is deleted.
        nodes.forget(gone);
    }
    let renewed = async {
        let mut renewals = 0;
        while renewals < 3 {
            let request = requests.recv().await.unwrap();
            assert!(!request.starts_with("given up"), "{request}");
            renewals += usize::from(request == "PUT vnode.lives.dev");
        }
    };
    tokio::select! {
        () = source.run_elections(&nodes) => {}
        () = renewed => {}
    }
    assert!(source.bases.lock().get("vnode.one.dev").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_lease_whose_deletion_is_seen_after_its_node_was_forgotten_leaves_nothing_behind() {
    let (source, nodes) = source(client("").0, &["lives", "one"]).await;
    let lease = |name: &str| {
        let metadata =
            json!({ "name": name, "namespace": "kube-node-lease", "uid": name, "resourceVersion": "7" });
        Arc::new(serde_json::from_value::<Lease>(json!({ "metadata": metadata })).unwrap())
    };
    let ends = |name: &str| source.leases.apply(&Event::Deleted(Tombstone::Last(lease(name))));
    let mut requests = Requests::new();
    for name in ["vnode.lives.dev", "vnode.one.dev"] {
        source.leases.apply(&Event::Added(lease(name)));
    }
    nodes.remove("vnode.one.dev");
    nodes.forget("vnode.one.dev");
    source.give_up_removed(&nodes, &mut requests).await;
    ends("vnode.one.dev");
    ends("vnode.lives.dev");
    source.give_up_removed(&nodes, &mut requests).await;
    assert!(source.leases.get("vnode.one.dev").is_none());
    assert!(source.leases.get("vnode.lives.dev").is_some_and(|seen| seen.deleted), "its node is known");
}

#[tokio::test(start_paused = true)]
async fn a_base_gets_its_node_by_an_answer_and_not_by_reports_alone() {
    let tunnel: Arc<NoTunnel> = Arc::default();
    let (source, nodes) = source_of(client("").0, &["one"], Arc::clone(&tunnel)).await;
    let asked = tunnel.health_requests();
    let (id, node) = source.names(&"one".parse().unwrap());
    let mut requests = Requests::new();
    let introduction = || TunnelEvent::NodeDiscovered(described("ACTIVATED"));
    nodes.remove(&node);
    for _ in 0..3 {
        source.process_event(0, &id, introduction(), &nodes).await;
        assert!(!nodes.contains(&node), "it does not answer");
        nodes.forget(&node);
        source.give_up_removed(&nodes, &mut requests).await;
        assert!(source.bases.lock().held(&node).is_some(), "it may answer");
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(tunnel.health_requests(), asked + 1);
    source.process_event(0, &id, TunnelEvent::NodeStatus(NodeStatusData::default()), &nodes).await;
    assert!(nodes.contains(&node));
    nodes.remove(&node);
    nodes.forget(&node);
    source.process_event(0, &id, introduction(), &nodes).await;
    tokio::time::advance(Duration::from_secs(3600)).await;
    source.give_up_removed(&nodes, &mut requests).await;
    assert!(source.bases.lock().get(&node).is_none(), "it does not introduce itself any more");
}

#[tokio::test(start_paused = true)]
async fn a_base_is_taken_over_with_the_tunnel_of_its_node_whoever_reported_through_another_one() {
    let (mut source, nodes) = source(client("").0, &[]).await;
    let other = Arc::new(UnconfiguredTunnel("other".to_owned()));
    source.tunnels.insert(0, NamedTunnel { name: "other".into(), tunnel: other });
    for (id, label, tunnel) in
        [("one", Some("none"), "none"), ("two", Some("gone"), "other"), ("new", None, "other")]
    {
        let names = source.names(&id.parse().unwrap());
        let node = Arc::clone(&names.1);
        if let Some(label) = label {
            let labels = json!({ "type": "virtual-kubelet", "base.koupleless.io/tunnel": label });
            let object = json!({ "metadata": { "name": *node, "uid": *node, "labels": labels } });
            let object: Arc<Node> = Arc::new(serde_json::from_value(object).unwrap());
            Index::<Node>::apply(&*nodes.pods, &Event::Added(object));
        }
        assert!(source.bases.lock().introduced(names, 0, &described("ACTIVATED"), Instant::now()));
        source.start_managing(&node, &nodes).await;
        assert_eq!(&*source.bases.lock().held(&node).unwrap().tunnel.name, tunnel, "{id}");
    }
}
