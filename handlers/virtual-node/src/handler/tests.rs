//! Tests of the handler without a cluster.

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use kube::api::{Patch, PatchParams, PostParams};
use parking_lot::Mutex;
use serde_json::json;
use staffetta_apiserver::{ApiServer, Options};
use staffetta_driver::app_hosting::HostedPods;
use staffetta_driver::virtual_node::{PodProgress, PodRequest};
use staffetta_driver::{DriverError, Owner, Reason};
use staffetta_handler::{
    CLUSTER_LABEL, Event, Failure, HANDLER_LABEL, HandlerError, Identity, Index, Recorder,
    ResourceEventHandler, Tombstone, TriggerHandler, Writer,
};

use super::*;
use crate::back_end::{NodeBackEnd, PodRemoval, Reply};
use crate::error::VirtualNodeError;
use crate::inventory::tests::workload;
use crate::kubelet::{KubeletOptions, KubeletWords, Kubelets};
use crate::machine::Machine;
use crate::metrics::VirtualNodeMetricsRegistry;
use crate::node::{NodeHealth, NodeObject, NodeSpec};
use crate::node_store::NodeStore;
use crate::policy::Policy;
use crate::reader::tests::Heard;
use crate::recorder::EventReason;
use crate::shared::PodRecord;
use crate::source::NodeSource;

/// A node source without nodes.
struct Nobody;

#[async_trait]
impl NodeSource for Nobody {
    async fn run(&self, _: Arc<NodeStore>) -> Result<(), HandlerError> {
        std::future::pending().await
    }

    async fn open(&self, _: &NodeSpec) -> Result<Arc<dyn NodeBackEnd>, DriverError> {
        Err(DriverError::new(Reason::NotFound, "open a machine"))
    }
}

/// Returns a handler without nodes, whose API server cannot be reached.
pub(crate) fn idle() -> VirtualNodes {
    VirtualNodes::new(dependencies())
}

/// Returns dependencies for a handler without nodes.
pub(crate) fn dependencies() -> Dependencies {
    let nowhere = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
    Dependencies {
        handler: "machines",
        cluster: "east".into(),
        client: kube::Client::try_from(nowhere).unwrap(),
        source: Arc::new(Nobody),
        recorder: Recorder::silent(),
        policy: Policy::default(),
        kubelets: None,
        predecessor: None,
        metrics: VirtualNodeMetricsRegistry::default(),
    }
}

#[tokio::test]
async fn a_pod_waits_for_the_event_of_the_last_write_no_longer_than_for_a_back_off() {
    assert!(idle().registration().superseded_by_key, "the event ends the wait of a trigger");
    let server = ApiServer::start(Options::default()).await.unwrap();
    let client = kube::Client::try_from(kube::Config::new(server.url().parse().unwrap())).unwrap();
    let pod =
        json!({ "metadata": { "name": "web" }, "spec": { "containers": [{ "name": "app", "image": "i" }] } });
    let pods: kube::Api<Pod> = kube::Api::namespaced(client.clone(), "default");
    let pod = pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let writer = Writer::<Pod>::new(client);
    writer.status(&pod, json!({ "phase": "Running" })).await.unwrap();
    let stale = VirtualNodeError::from(writer.fresh(&pod).unwrap_err());
    assert!(stale.transient() && stale.retry_after().is_none(), "{stale}");
}

#[tokio::test(start_paused = true)]
async fn only_a_machine_that_answers_its_reader_and_not_for_a_pod_is_reported() {
    let shared = idle().shared();
    shared.node_store.add_or_update(NodeSpec::bare("r1"));
    let machine = shared.node_store.get("r1").unwrap();
    let owner = Owner { namespace: "default".into(), name: "web".into(), uid: "u1".into() };
    let step = |reason| shared.is_tolerated(&owner, &machine, &DriverError::new(reason, "install"));
    machine.read_succeeded();
    assert!(!step(Reason::Refused), "it answered");
    let unanswered = || [(); 4].map(|()| step(Reason::Unavailable));
    assert_eq!(unanswered(), [true, true, false, false]);
    shared.reset_unanswered(&owner);
    assert_eq!(unanswered(), [true, true, false, false]);
    machine.read_failed("DriverUnavailable", "no answer".into(), false);
    assert!(machine.view().reach.is_up(), "it may be an outage");
    assert_eq!(unanswered(), [true; 4]);
}

/// A back end that records what it is told of the pods to remove, and is done with the second step. It never completes a
/// change of a pod. It counts the steps to deploy pods.
#[derive(Default)]
struct Removals {
    removals: Mutex<Vec<PodRemoval>>,
    applied: AtomicUsize,
}

#[async_trait]
impl NodeBackEnd for Removals {
    async fn health(&self) -> Result<Reply<NodeHealth>, DriverError> {
        Ok(Reply::Later)
    }

    async fn inventory(&self) -> Result<Reply<HostedPods>, DriverError> {
        Ok(Reply::Later)
    }

    async fn apply(&self, _: &PodRequest) -> Result<PodProgress, DriverError> {
        self.applied.fetch_add(1, Ordering::Relaxed);
        Ok(PodProgress::Done)
    }

    async fn update(&self, _: &PodRequest) -> Result<PodProgress, DriverError> {
        Ok(PodProgress::Working { state: "removing".into(), poll_after: Duration::from_secs(1) })
    }

    async fn remove(&self, removal: &PodRemoval) -> Result<PodProgress, DriverError> {
        let mut removals = self.removals.lock();
        removals.push(removal.clone());
        let working = PodProgress::Working { state: "stopping".into(), poll_after: Duration::from_secs(1) };
        Ok(if removals.len() < 2 { working } else { PodProgress::Done })
    }
}

/// Returns a handler with an API server that has no pods, the machine `r1` and its back end, and a pod that was on it.
async fn with_machine() -> (ApiServer, VirtualNodes, Arc<Machine>, Arc<Removals>, Arc<Pod>) {
    let server = ApiServer::start(Options::default()).await.unwrap();
    let client = kube::Client::try_from(kube::Config::new(server.url().parse().unwrap())).unwrap();
    let policy = Policy { poll_interval: Duration::from_millis(1), ..Policy::default() };
    let handler = VirtualNodes::new(Dependencies { client, policy, ..dependencies() });
    let shared = handler.shared();
    shared.node_store.add_or_update(NodeSpec::bare("r1"));
    let machine = shared.node_store.get("r1").unwrap();
    let removals = Arc::new(Removals::default());
    let back_end: Arc<dyn NodeBackEnd> = removals.clone();
    assert!(machine.set_connection(0, &back_end));
    machine.set_object(NodeObject::Ours);
    shared.node_store.inventory("r1", &[workload("u1", true)].into());
    let metadata = json!({ "name": "web", "namespace": "default", "uid": "u1" });
    let containers = json!([{ "name": "app", "image": "i" }]);
    let pod = json!({ "metadata": metadata, "spec": { "nodeName": "r1", "containers": containers } });
    (server, handler, machine, removals, Arc::new(serde_json::from_value(pod).unwrap()))
}

#[tokio::test]
async fn a_back_end_learns_what_a_deleted_pod_was_and_what_runs_of_it_at_each_step() {
    let (_server, handler, _, removals, pod) = with_machine().await;
    let shared = handler.shared();
    shared.pod_is_gone(&pod).await.unwrap();
    shared.clear_unowned(&Owner::of(&pod.metadata), "r1").await.unwrap();
    let removals = removals.removals.lock();
    assert_eq!(removals.len(), 2);
    for removal in removals.iter() {
        assert_eq!((&removal.owner, removal.pod.as_ref()), (&Owner::of(&pod.metadata), Some(&pod)));
        assert!(removal.workload.as_ref().is_some_and(|workload| workload.containers[0].name == "app"));
    }
    assert!(shared.records.is_empty(), "nothing is kept of a pod whose workload is removed");
}

#[tokio::test]
async fn the_workload_of_a_pod_that_was_deleted_while_its_machine_was_unreachable_is_removed_later() {
    let (_server, handler, machine, removals, pod) = with_machine().await;
    let shared = handler.shared();
    machine.fell_silent();
    shared.pod_is_gone(&pod).await.unwrap();
    assert_eq!(removals.removals.lock().len(), 0);
    machine.report_arrived(true);
    for _ in 0..2 {
        let due = shared.delay_queue.next().await;
        shared.reconcile_pod(&due.owner(), "r1").await.unwrap();
    }
    assert!(removals.removals.lock().iter().all(|removal| removal.pod.as_ref() == Some(&pod)));
    assert_eq!((removals.removals.lock().len(), shared.records.len()), (2, 0));
    shared.pod_is_gone(&pod).await.unwrap();
    shared.node_store.remove("r1");
    shared.reconcile_pod(&Owner::of(&pod.metadata), "r1").await.unwrap();
    assert!(shared.records.is_empty(), "its machine is gone");
}

#[tokio::test]
async fn a_pod_is_not_deployed_again_that_the_api_server_does_not_have_although_no_event_shows_that() {
    let (_server, handler, _, removals, pod) = with_machine().await;
    let (shared, owner) = (handler.shared(), Owner::of(&pod.metadata));
    shared.cluster.apply(&Event::Added(Arc::clone(&pod)));
    for _ in 0..4 {
        shared.reconcile_pod(&owner, "r1").await.unwrap();
        shared.cluster.apply(&Event::Modified(Arc::clone(&pod)));
    }
    assert_eq!((removals.applied.load(Ordering::Relaxed), removals.removals.lock().len()), (1, 2));
    assert!(shared.cluster.pods_on("r1").is_empty(), "other pods do not share anything with it");
    shared.cluster.apply(&Event::Deleted(Tombstone::Last(Arc::clone(&pod))));
    shared.pod_is_gone(&pod).await.unwrap();
    assert!(shared.records.is_empty());
    shared.cluster.apply(&Event::Added(Arc::clone(&pod)));
    assert_eq!(shared.cluster.pods_on("r1").len(), 1, "nothing is kept of it");
}

#[tokio::test]
async fn what_an_earlier_process_had_deployed_is_deployed_again_only_if_its_pod_exists() {
    let (_server, handler, machine, removals, pod) = with_machine().await;
    let shared = handler.shared();
    let mut running = Pod::clone(&pod);
    running.metadata.uid = Some("u2".into());
    let container = json!({ "name": "app", "image": "i", "imageID": "", "ready": true, "restartCount": 0, "containerID": "m://1" });
    let status = json!({ "phase": "Running", "containerStatuses": [container] });
    running.status = serde_json::from_value(status).unwrap();
    let (owner, running) = (Owner::of(&running.metadata), Arc::new(running));
    machine.set_expected(std::slice::from_ref(&running));
    shared.cluster.apply(&Event::Added(running));
    for _ in 0..4 {
        shared.reconcile_pod(&owner, "r1").await.unwrap();
    }
    assert_eq!(removals.applied.load(Ordering::Relaxed), 0);
    assert!(shared.cluster.pods_on("r1").is_empty());
}

#[tokio::test]
async fn a_back_end_learns_what_a_pod_was_whose_deletion_no_watch_reported() {
    let (_server, handler, _, removals, pod) = with_machine().await;
    let shared = handler.shared();
    shared.cluster.apply(&Event::Added(Arc::clone(&pod)));
    let identity = Identity::of::<Pod>(Some("default".to_owned()), "web".to_owned(), "u1".to_owned());
    let missed = Tombstone::Missed(Arc::new(identity));
    shared.cluster.apply(&Event::Deleted(missed.clone()));
    ResourceEventHandler::<Pod>::on_deleted(&handler, &missed).await.unwrap();
    assert_eq!(removals.removals.lock()[0].pod.as_ref(), Some(&pod));
    assert!(shared.cluster.take_missed("u1").is_none(), "it is taken once");
}

#[tokio::test]
async fn the_workload_of_a_pod_whose_deletion_no_watch_reported_is_removed_even_if_the_first_attempt_fails() {
    let (server, handler, _, removals, pod) = with_machine().await;
    let shared = handler.shared();
    shared.cluster.apply(&Event::Added(Arc::clone(&pod)));
    let identity = Identity::of::<Pod>(Some("default".to_owned()), "web".to_owned(), "u1".to_owned());
    let missed = Tombstone::Missed(Arc::new(identity));
    shared.cluster.apply(&Event::Deleted(missed.clone()));
    drop(server);
    for _ in 0..2 {
        let attempt = ResourceEventHandler::<Pod>::on_deleted(&handler, &missed).await;
        assert!(matches!(attempt, Err(VirtualNodeError::Owner(_))), "{attempt:?}");
    }
    assert!(removals.removals.lock().is_empty() && shared.records.contains_key(&"u1".into()));
}

#[tokio::test]
async fn an_event_of_a_node_does_not_wait_for_pods_before_a_renewal_of_its_lease() {
    let handler = idle();
    let node: Node = serde_json::from_value(json!({ "metadata": { "name": "r1", "uid": "n1" } })).unwrap();
    let renewal = TriggerHandler::<NodeDue>::group(&handler, &NodeDue::new("r1"));
    for event in [Event::Added(Arc::new(node.clone())), Event::Deleted(Tombstone::Last(Arc::new(node)))] {
        assert_eq!(ResourceEventHandler::<Node>::group(&handler, &event), renewal);
    }
}

#[tokio::test]
async fn a_running_pod_does_not_wait_for_an_unreachable_machine_after_a_restart() {
    let (_server, handler, machine, _, pod) = with_machine().await;
    let (shared, owner) = (handler.shared(), Owner::of(&pod.metadata));
    machine.fell_silent();
    for (phase, expected) in [("Running", None), ("Pending", Some(EventReason::Waits))] {
        let status = serde_json::from_value(json!({ "phase": phase })).unwrap();
        shared.cluster.apply(&Event::Added(Arc::new(Pod { status: Some(status), ..Pod::clone(&pod) })));
        shared.reconcile_pod(&owner, "r1").await.unwrap();
        assert_eq!(shared.records.get(&owner.uid).and_then(|record| record.reported), expected, "{phase}");
    }
}

#[tokio::test]
async fn the_former_workload_of_a_pod_that_is_being_replaced_is_not_lost() {
    let (_server, handler, _, _, pod) = with_machine().await;
    let shared = handler.shared();
    let pods: kube::Api<Pod> = kube::Api::namespaced(shared.config.client.clone(), "default");
    let pod = Arc::new(pods.create(&PostParams::default(), &pod).await.unwrap());
    let owner = Owner::of(&pod.metadata);
    shared.node_store.inventory("r1", &[workload(owner.uid.as_str(), true)].into());
    let other_form = PodRecord { applied: Some(0), workload_seen: true, ..PodRecord::default() };
    shared.records.insert(owner.uid.clone(), other_form);
    for _ in 0..2 {
        shared.cluster.apply(&Event::Modified(Arc::new(pods.get("web").await.unwrap())));
        shared.reconcile_pod(&owner, "r1").await.unwrap();
        let record = shared.records.get(&owner.uid).unwrap();
        assert_eq!((record.reported, record.workload_seen), (Some(EventReason::Replaced), false));
    }
}

#[tokio::test]
async fn a_failure_that_a_machine_reports_is_reported_at_once_and_once_until_the_pod_is_deployed() {
    let heard = Heard::default();
    let handler = VirtualNodes::new(Dependencies { recorder: heard.recorder(), ..dependencies() });
    let shared = handler.shared();
    shared.node_store.add_or_update(NodeSpec::bare("r1"));
    let machine = shared.node_store.get("r1").unwrap();
    let owner = Owner { namespace: "default".into(), name: "web".into(), uid: "u1".into() };
    let step = |progress| shared.step(&owner, &machine, Ok(progress), VirtualNodeError::Apply).is_ok();
    let fail = || {
        let (reason, message) = ("InstallFailed".into(), "not signed".into());
        step(PodProgress::Failing { reason, message, poll_after: Duration::from_secs(2) })
    };
    assert!(!fail());
    assert_eq!(
        heard.taken(),
        [("InstallFailed", "run or remove the pod: InstallFailed: not signed".to_owned())]
    );
    assert!(step(PodProgress::Working { state: "installing".into(), poll_after: Duration::from_secs(1) }));
    assert!(!fail());
    assert_eq!(heard.taken(), []);
    let running = json!({ "status": { "phase": "Running" } });
    assert!(shared.record_deployed(&owner, &serde_json::from_value(running).unwrap()), "the failure is over");
    assert!(!fail());
    assert_eq!(heard.taken().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_grace_period_of_a_node_without_a_machine_begins_anew_if_its_object_comes_back() {
    let shared = idle().shared();
    let labels = json!({ "type": "virtual-kubelet", HANDLER_LABEL: "machines", CLUSTER_LABEL: "east" });
    let node = json!({ "metadata": { "name": "r1", "uid": "n1", "labels": labels } });
    let node: Arc<Node> = Arc::new(serde_json::from_value(node).unwrap());
    shared.node_store.complete();
    shared.cluster.apply(&Event::Added(Arc::clone(&node)));
    shared.reconcile_node("r1").await.unwrap();
    assert!(shared.orphaned_since.contains_key("r1"));
    shared.cluster.apply(&Event::Deleted(Tombstone::Last(node)));
    shared.reconcile_node("r1").await.unwrap();
    assert!(shared.orphaned_since.is_empty());
}

#[tokio::test]
async fn a_removal_that_a_machine_interrupts_counts_as_waiting_from_then_on() {
    let (_server, handler, machine, _, pod) = with_machine().await;
    let (shared, owner) = (handler.shared(), Owner::of(&pod.metadata));
    let others = |shared: &Shared| {
        for number in 0..1000 {
            let other = PodRecord { deleted: Some(Arc::clone(&pod)), ..PodRecord::default() };
            shared.records.insert(format!("other-{number}").as_str().into(), other);
        }
    };
    shared.pod_is_gone(&pod).await.unwrap();
    machine.fell_silent();
    others(&shared);
    shared.pod_is_gone(&pod).await.unwrap();
    assert!(!shared.records.contains_key(&owner.uid), "too many wait already");
    shared.records.clear();
    shared.pod_is_gone(&pod).await.unwrap();
    others(&shared);
    shared.pod_is_gone(&pod).await.unwrap();
    assert!(shared.records.contains_key(&owner.uid), "it has waited before");
}

#[tokio::test]
async fn a_node_whose_description_was_never_valid_is_deleted_as_soon_as_it_departs() {
    let (_server, handler, ..) = with_machine().await;
    let shared = handler.shared();
    let nodes: kube::Api<Node> = kube::Api::all(shared.config.client.clone());
    let labels = json!({ "type": "virtual-kubelet", HANDLER_LABEL: "machines", CLUSTER_LABEL: "east" });
    let node = json!({ "metadata": { "name": "r2", "labels": labels } });
    let node = nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    shared.cluster.apply(&Event::Added(Arc::new(node)));
    shared.node_store.set_unreadable(vec!["r2".to_owned()]);
    shared.reconcile_node("r2").await.unwrap();
    assert!(nodes.get_opt("r2").await.unwrap().is_some());
    shared.node_store.depart("r1");
    shared.node_store.depart("r2");
    shared.reconcile_node("r2").await.unwrap();
    assert!(nodes.get_opt("r2").await.unwrap().is_none());
    assert!(!shared.node_store.has_departed("r1"), "it has a machine");
}

#[tokio::test]
async fn the_port_of_a_kubelet_api_that_is_not_open_yet_stays_after_a_restart() {
    let localhost = IpAddr::from([127, 0, 0, 1]);
    let options = KubeletOptions {
        listen: localhost,
        address: localhost,
        first_port: 10_250,
        certificate: None,
        client_authority: None,
        words: KubeletWords { machine: "device", client_authority: "section.ca" },
    };
    for (kubelets, expected) in [(None, None), (Some(Kubelets::new(options).unwrap()), Some(10_251))] {
        let server = ApiServer::start(Options::default()).await.unwrap();
        let client = kube::Client::try_from(kube::Config::new(server.url().parse().unwrap())).unwrap();
        let nodes: kube::Api<Node> = kube::Api::all(client.clone());
        let shared = VirtualNodes::new(Dependencies { client, kubelets, ..dependencies() }).shared();
        shared.node_store.add_or_update(NodeSpec::bare("r1"));
        shared.reconcile_node("r1").await.unwrap();
        let port = json!({ "status": { "daemonEndpoints": { "kubeletEndpoint": { "Port": 10_251 } } } });
        let node = nodes.patch_status("r1", &PatchParams::default(), &Patch::Merge(port)).await.unwrap();
        shared.cluster.apply(&Event::Added(Arc::new(node)));
        shared.reconcile_node("r1").await.unwrap();
        let endpoints = nodes.get("r1").await.unwrap().status.unwrap().daemon_endpoints;
        let port = endpoints.and_then(|endpoints| endpoints.kubelet_endpoint).map(|endpoint| endpoint.port);
        assert_eq!(port, expected);
    }
}

impl NodeSpec {
    /// Returns the specification of a node with this name, room for one pod, and nothing else.
    pub(crate) fn bare(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            labels: std::collections::BTreeMap::new(),
            annotations: std::collections::BTreeMap::new(),
            taints: Vec::new(),
            max_pods: 1,
            host_ip: None,
            host_name: None,
            address: String::new(),
            session: 0,
            retired: false,
        }
    }
}
