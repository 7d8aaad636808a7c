//! Tests of the handler without a cluster.

use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use kube::api::PostParams;
use serde_json::json;
use staffetta_apiserver::{ApiServer, Options};
use staffetta_driver::app_hosting::HostedPods;
use staffetta_driver::virtual_node::{PodProgress, PodRequest};
use staffetta_driver::{DriverError, Owner, Reason};
use staffetta_handler::{
    Event, Failure, HandlerError, Identity, Index, Recorder, ResourceEventHandler, Tombstone, Writer,
};

use super::*;
use crate::back_end::{NodeBackEnd, PodRemoval, Reply};
use crate::error::VirtualNodeError;
use crate::inventory::tests::workload;
use crate::machine::Machine;
use crate::metrics::VirtualNodeMetricsRegistry;
use crate::node::{NodeHealth, NodeObject, NodeSpec};
use crate::node_store::NodeStore;
use crate::policy::Policy;
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
    let (handler, ..) = idle().registration().erase().into_parts();
    assert_eq!(handler.superseded(), Superseded::BySameKey, "the event ends the wait of a trigger");
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

/// A back end that records what it is told of the pods to remove, and is done with the second step.
#[derive(Default)]
struct Removals(Mutex<Vec<PodRemoval>>);

#[async_trait]
impl NodeBackEnd for Removals {
    async fn health(&self) -> Result<Reply<NodeHealth>, DriverError> {
        Ok(Reply::Later)
    }

    async fn inventory(&self) -> Result<Reply<HostedPods>, DriverError> {
        Ok(Reply::Later)
    }

    async fn apply(&self, _: &PodRequest) -> Result<PodProgress, DriverError> {
        Ok(PodProgress::Done)
    }

    async fn remove(&self, removal: &PodRemoval) -> Result<PodProgress, DriverError> {
        let mut removals = self.0.lock().unwrap();
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
    let pod = json!({ "metadata": metadata, "spec": { "nodeName": "r1", "containers": [] } });
    (server, handler, machine, removals, Arc::new(serde_json::from_value(pod).unwrap()))
}

#[tokio::test]
async fn a_back_end_is_told_what_a_deleted_pod_was_and_what_runs_of_it_at_each_step() {
    let (_server, handler, _, removals, pod) = with_machine().await;
    let shared = handler.shared();
    shared.pod_is_gone(&pod).await.unwrap();
    shared.clear_unowned(&Owner::of(&pod.metadata), "r1").await.unwrap();
    let removals = removals.0.lock().unwrap();
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
    assert_eq!(removals.0.lock().unwrap().len(), 0);
    machine.report_arrived(true);
    for _ in 0..2 {
        let due = shared.delay_queue.next().await;
        shared.reconcile_pod(&due.owner(), "r1").await.unwrap();
    }
    assert!(removals.0.lock().unwrap().iter().all(|removal| removal.pod.as_ref() == Some(&pod)));
    assert_eq!((removals.0.lock().unwrap().len(), shared.records.len()), (2, 0));
    shared.pod_is_gone(&pod).await.unwrap();
    shared.node_store.remove("r1");
    shared.reconcile_pod(&Owner::of(&pod.metadata), "r1").await.unwrap();
    assert!(shared.records.is_empty(), "its machine is gone");
}

#[tokio::test]
async fn a_back_end_is_told_what_a_pod_was_whose_deletion_no_watch_reported() {
    let (_server, handler, _, removals, pod) = with_machine().await;
    let shared = handler.shared();
    shared.cluster.apply(&Event::Added(Arc::clone(&pod)));
    let identity = Identity::of::<Pod>(Some("default".to_owned()), "web".to_owned(), "u1".to_owned());
    let missed = Tombstone::Missed(Arc::new(identity));
    shared.cluster.apply(&Event::Deleted(missed.clone()));
    ResourceEventHandler::<Pod>::on_deleted(&handler, &missed).await.unwrap();
    assert_eq!(removals.0.lock().unwrap()[0].pod.as_ref(), Some(&pod));
    assert!(shared.cluster.take_missed("u1").is_none(), "it is taken once");
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
