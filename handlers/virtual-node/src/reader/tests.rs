//! Tests of the reads of machines.

use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;
use serde_json::json;
use staffetta_driver::app_hosting::HostedPods;
use staffetta_driver::virtual_node::{PodProgress, PodRequest};
use staffetta_handler::{AnyEvent, CLUSTER_LABEL, Event, EventNote, HANDLER_LABEL, Index, Message, Recorder};
use staffetta_memory::{AppHostingMethod, Fault, MemoryAppHostingDriver, MemoryDevice, MemoryDevices};

use super::*;
use crate::app_hosting::DeviceBackEnd;
use crate::back_end::PodRemoval;
use crate::handler::VirtualNodes;
use crate::handler::tests::{dependencies, idle};
use crate::inventory::tests::workload;
use crate::node::{NodeHealth, NodeSpec};
use crate::node_store::NodeStore;
use crate::policy::Policy;
use crate::reach::Reachability;
use crate::shared::Dependencies;
use crate::source::NodeSource;

#[tokio::test(start_paused = true)]
async fn what_was_read_for_a_pod_is_forgotten_with_it_or_when_its_time_is_over() {
    let shared = idle().shared();
    shared.environments.keep("gone");
    shared.environments.keep("stays");
    shared.forget(&"gone".into());
    assert_eq!(shared.environments.kept(), 1);
    let readers = MachineReaders(Arc::clone(&shared));
    let run =
        |seconds| tokio::time::timeout(Duration::from_secs(seconds), readers.run(TriggerSender::new(|_| ())));
    assert!(run(50).await.is_err());
    assert_eq!(shared.environments.kept(), 1);
    assert!(run(30).await.is_err());
    assert_eq!(shared.environments.kept(), 0, "it expired");
}

/// A node source with one node, whose machine is a device in memory.
struct OneDevice(Arc<MemoryDevice>);

#[async_trait]
impl NodeSource for OneDevice {
    async fn run(&self, nodes: Arc<NodeStore>) -> Result<(), HandlerError> {
        nodes.add_or_update(NodeSpec::bare("r1"));
        nodes.complete();
        std::future::pending().await
    }

    async fn open(&self, _: &NodeSpec) -> Result<Arc<dyn NodeBackEnd>, DriverError> {
        let driver = MemoryAppHostingDriver::new(Arc::clone(&self.0), "east".into());
        Ok(Arc::new(DeviceBackEnd::new(Arc::new(driver), None, 0)))
    }

    /// Another process acts for the node `theirs`.
    fn may_act(&self, name: &str) -> bool {
        name != "theirs"
    }
}

#[tokio::test]
async fn nodes_without_a_machine_are_looked_at_by_the_process_that_acts_for_them() {
    let source = Arc::new(OneDevice(MemoryDevices::default().device("r1")));
    let shared = VirtualNodes::new(Dependencies { source, ..dependencies() }).shared();
    for name in ["ours", "theirs"] {
        let labels = json!({ "type": "virtual-kubelet", HANDLER_LABEL: "machines", CLUSTER_LABEL: "east" });
        let node = json!({ "metadata": { "name": name, "uid": name, "labels": labels } });
        Index::<Node>::apply(&*shared.cluster, &Event::Added(serde_json::from_value(node).unwrap()));
    }
    let due = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&due);
    let take = move |trigger: AnyEvent| heard.lock().push(trigger.object_ref().name.to_owned());
    shared.node_store.notifier.connect(&TriggerSender::new(take));
    MachineReaders(shared).trigger_orphaned_nodes();
    assert_eq!(*due.lock(), ["ours"]);
}

/// A recorder that keeps the Events.
#[derive(Clone, Default)]
pub(crate) struct Heard(Arc<Mutex<Vec<EventNote>>>);

impl Heard {
    pub(crate) fn recorder(&self) -> Recorder {
        let notes = Arc::clone(&self.0);
        Recorder::new(move |note| notes.lock().push(note))
    }

    /// Returns the Events of the next minutes, as reasons and texts.
    async fn in_minutes(&self, minutes: u64) -> Vec<(&'static str, String)> {
        tokio::time::sleep(Duration::from_secs(60 * minutes)).await;
        self.taken()
    }

    /// Returns the Events since the last call, as reasons and texts.
    pub(crate) fn taken(&self) -> Vec<(&'static str, String)> {
        self.0.lock().drain(..).map(|note| (note.reason, note.text)).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_refuses_us_after_an_outage_is_reported_anew_and_its_first_answer_is_no_news() {
    let (device, heard) = (MemoryDevices::default().device("r1"), Heard::default());
    let source = Arc::new(OneDevice(Arc::clone(&device)));
    let dependencies = Dependencies { source, recorder: heard.recorder(), ..dependencies() };
    let readers = MachineReaders(VirtualNodes::new(dependencies).shared());
    let reading = tokio::spawn(async move { readers.run(TriggerSender::new(|_| ())).await });
    assert_eq!(heard.in_minutes(5).await, [], "it was reached at the start");
    device.set_reachable(false);
    let reported = heard.in_minutes(5).await;
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(reported[0].0 == "MachineUnreachable" && reported[0].1.contains("switched off"), "{reported:?}");
    let refusal = DriverError::new(Reason::Refused, "log in").detail("401");
    device.faults().inject(AppHostingMethod::Resources, 1000, Fault::Fail(refusal));
    let reported = heard.in_minutes(60).await;
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(
        reported[0].0 == "MachineUnreachable" && reported[0].1.contains("the request was rejected: 401"),
        "{reported:?}"
    );
    device.faults().clear();
    device.set_reachable(true);
    let reported = heard.in_minutes(15).await;
    assert_eq!(reported.iter().map(|(reason, _)| *reason).collect::<Vec<_>>(), ["MachineReached"]);
    reading.abort();
}

#[tokio::test(start_paused = true)]
async fn who_waits_behind_others_has_patience_as_long_as_the_machine_answers_them() {
    const LIMIT: Duration = Duration::from_secs(30);
    let (began, sleep) = (Instant::now(), |seconds| tokio::time::sleep(Duration::from_secs(seconds)));
    assert_eq!(with_extended_limit(LIMIT, || None, sleep(29)).await, Some(()));
    assert_eq!(with_extended_limit(LIMIT, || None, sleep(31)).await, None);
    assert_eq!(with_extended_limit(LIMIT, || Some(began), sleep(31)).await, None, "that was long ago");
    assert_eq!(with_extended_limit(LIMIT, || Some(Instant::now()), sleep(300)).await, Some(()));
    let silent_after = Instant::now() + Duration::from_secs(100);
    let answered = || Some(Instant::now().min(silent_after));
    let begun = Instant::now();
    assert_eq!(with_extended_limit(LIMIT, answered, sleep(1000)).await, None);
    assert_eq!(begun.elapsed(), Duration::from_secs(130));
}

#[test]
fn nodes_that_came_together_do_not_go_on_together() {
    let wait = Duration::from_secs(10);
    let mut waits: Vec<_> = (0..1000).map(|node| spread(wait, &format!("n{node}"), 1)).collect();
    waits.sort_unstable();
    assert!(waits[0] >= Duration::from_secs(9) && waits[999] <= Duration::from_secs(11));
    waits.dedup();
    assert!(waits.len() > 100, "{} different times", waits.len());
}

/// A node source with one node, whose machine reports by itself.
#[derive(Clone, Default)]
struct OneReporter(Arc<ReadCounts>);

/// The numbers of reads of a machine.
#[derive(Default)]
struct ReadCounts {
    health: AtomicUsize,
    workloads: AtomicUsize,
}

/// The machine of [`OneReporter`], which counts how often it is read. Its answers come later.
struct Reporter(Arc<ReadCounts>);

#[async_trait]
impl NodeSource for OneReporter {
    async fn run(&self, nodes: Arc<NodeStore>) -> Result<(), HandlerError> {
        nodes.add_or_update(NodeSpec::bare("b1"));
        nodes.complete();
        std::future::pending().await
    }

    async fn open(&self, _: &NodeSpec) -> Result<Arc<dyn NodeBackEnd>, DriverError> {
        Ok(Arc::new(Reporter(Arc::clone(&self.0))))
    }
}

#[async_trait]
impl NodeBackEnd for Reporter {
    async fn health(&self) -> Result<Reply<NodeHealth>, DriverError> {
        self.0.health.fetch_add(1, Ordering::Relaxed);
        Ok(Reply::Later)
    }

    async fn inventory(&self) -> Result<Reply<HostedPods>, DriverError> {
        self.0.workloads.fetch_add(1, Ordering::Relaxed);
        Ok(Reply::Later)
    }

    async fn apply(&self, _: &PodRequest) -> Result<PodProgress, DriverError> {
        Ok(PodProgress::Done)
    }

    async fn remove(&self, _: &PodRemoval) -> Result<PodProgress, DriverError> {
        Ok(PodProgress::Done)
    }
}

/// A handler with the node of [`OneReporter`], whose machine is read.
struct ReporterWorld {
    source: OneReporter,
    heard: Heard,
    shared: Arc<Shared>,
    _reading: JoinSet<()>,
}

/// The behaviour of the machine of [`OneReporter`].
#[derive(Clone, Copy)]
struct Sends {
    heartbeats: bool,
    answers: bool,
}

impl ReporterWorld {
    fn new() -> Self {
        let (source, heard) = (OneReporter::default(), Heard::default());
        let policy = Policy {
            poll_interval: Duration::from_secs(10),
            health_interval: Duration::from_secs(30),
            gone_after: Some(Duration::from_secs(60)),
            ..Policy::default()
        };
        let recorder = heard.recorder();
        let dependencies =
            Dependencies { source: Arc::new(source.clone()), recorder, policy, ..dependencies() };
        let shared = VirtualNodes::new(dependencies).shared();
        let readers = MachineReaders(Arc::clone(&shared));
        let mut reading = JoinSet::new();
        reading.spawn(async move { drop(readers.run(TriggerSender::new(|_| ())).await) });
        Self { source, heard, shared, _reading: reading }
    }

    /// Has the machine behave so for some seconds, with a heartbeat at the start and every 12 s. Returns the number of reads of its
    /// workloads.
    async fn pass(&self, seconds: u64, sends: Sends) -> usize {
        let reads = || self.source.0.workloads.load(Ordering::Relaxed);
        let (before, mut answered) = (reads(), reads());
        for second in 0..seconds {
            if sends.heartbeats && second % 12 == 0 {
                self.shared.node_store.heartbeat("b1");
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            if sends.answers && reads() > answered {
                self.shared.node_store.health("b1", NodeHealth::default());
                self.shared.node_store.inventory("b1", &HostedPods::from([]));
            }
            answered = reads();
        }
        reads() - before
    }

    fn reach(&self) -> Option<Reachability> {
        self.shared.node_store.get("b1").map(|machine| machine.view().reach)
    }

    fn is_up(&self) -> bool {
        self.reach().is_some_and(|reach| reach.is_up())
    }

    /// Returns the Events since the last call.
    async fn events(&self) -> Vec<(&'static str, String)> {
        self.heard.in_minutes(0).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_answers_come_later_is_judged_by_its_reports_and_not_by_what_was_sent() {
    let (world, silent) = (ReporterWorld::new(), Sends { heartbeats: false, answers: false });
    world.pass(15, silent).await;
    assert_eq!(world.reach(), Some(Reachability::Untried), "a request that was sent is no answer");
    world.pass(600, Sends { answers: true, ..silent }).await;
    assert!(world.is_up() && world.events().await.is_empty());
    world.pass(36, silent).await;
    let reported = world.events().await;
    assert!(!world.is_up() && reported.len() == 1, "{reported:?}");
    assert!(reported[0].0 == "MachineUnreachable" && reported[0].1.contains("no report for"), "{reported:?}");
    world.pass(12, Sends { answers: true, ..silent }).await;
    assert!(world.is_up());
    let reported = world.events().await;
    assert_eq!(reported.iter().map(|(reason, _)| *reason).collect::<Vec<_>>(), ["MachineReached"]);
    world.pass(72, silent).await;
    assert!(world.reach().is_none() && world.shared.node_store.has_departed("b1"), "its node is removed");
}

#[tokio::test(start_paused = true)]
async fn a_machine_is_read_less_often_as_long_as_its_heartbeats_arrive() {
    let world = ReporterWorld::new();
    let silent = Sends { heartbeats: false, answers: true };
    let reads = world.pass(300, silent).await;
    assert!((27..=34).contains(&reads), "{reads} without heartbeats, one in 10 s");
    let reads = world.pass(300, Sends { heartbeats: true, answers: true }).await;
    assert!((9..=12).contains(&reads), "{reads} with heartbeats, one in 30 s");
    let reads = world.pass(300, silent).await;
    assert!((27..=34).contains(&reads), "{reads} after the last heartbeat");
    world.shared.node_store.heartbeat("b1");
    world.shared.node_store.changed("b1");
    assert_eq!(world.pass(1, silent).await, 1, "a change is looked at at once");
    assert!(world.is_up() && world.events().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_health_is_read_rarely_while_heartbeats_arrive_and_again_after_a_change_of_the_workloads() {
    let world = ReporterWorld::new();
    let health_reads = || world.source.0.health.swap(0, Ordering::Relaxed);
    world.pass(300, Sends { heartbeats: false, answers: true }).await;
    let reads = health_reads();
    assert!((7..=11).contains(&reads), "{reads} without heartbeats, one in 30 to 40 s");
    world.pass(600, Sends { heartbeats: true, answers: true }).await;
    let reads = health_reads();
    assert!((3..=4).contains(&reads), "{reads} with heartbeats, one in 135 to 200 s");
    world.shared.node_store.inventory("b1", &HostedPods::from([workload("u1", true)]));
    world.pass(33, Sends { heartbeats: true, answers: true }).await;
    assert_eq!(health_reads(), 1, "with the next read after a change");
    world.pass(60, Sends { heartbeats: false, answers: true }).await;
    assert!(health_reads() > 0, "the heartbeats have stopped");
}

#[tokio::test(start_paused = true)]
async fn changes_of_the_workloads_do_not_shorten_the_interval_of_the_health() {
    let world = ReporterWorld::new();
    for change in 0..60 {
        world.pass(5, Sends { heartbeats: false, answers: true }).await;
        let workload = workload("u1", change % 2 == 0);
        world.shared.node_store.inventory("b1", &HostedPods::from([workload]));
    }
    let reads = world.source.0.health.load(Ordering::Relaxed);
    assert!((7..=11).contains(&reads), "{reads} in 300 s");
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_sends_heartbeats_and_answers_no_read_becomes_unreachable_and_then_its_node_is_removed()
 {
    let (world, unanswering) = (ReporterWorld::new(), Sends { heartbeats: true, answers: false });
    world.pass(60, Sends { answers: true, ..unanswering }).await;
    let mut spared = 0;
    while world.pass(1, unanswering).await == 0 {
        spared += 1;
    }
    assert!(spared <= 33, "{spared} s until the first read that it does not answer");
    for (seconds, up) in [(22, Some(true)), (3, Some(false)), (32, Some(false)), (3, None)] {
        world.pass(seconds, unanswering).await;
        assert_eq!(world.reach().map(|reach| reach.is_up()), up);
    }
    let reported = world.events().await;
    assert!(reported[0].1.contains("although it sends heartbeats"), "{reported:?}");
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_falls_silent_is_judged_by_its_last_heartbeat_to_the_second() {
    let (world, live) = (ReporterWorld::new(), Sends { heartbeats: true, answers: true });
    world.pass(61, live).await;
    // The last heartbeat was a second ago.
    let silent = Sends { heartbeats: false, answers: false };
    for (seconds, up) in [(23, Some(true)), (2, Some(false)), (33, Some(false)), (2, None)] {
        world.pass(seconds, silent).await;
        assert_eq!(world.reach().map(|reach| reach.is_up()), up);
    }
}

#[tokio::test(start_paused = true)]
async fn heartbeats_before_the_first_answer_do_not_count_and_its_node_gets_its_time() {
    let (world, unanswering) = (ReporterWorld::new(), Sends { heartbeats: true, answers: false });
    let reads = world.pass(58, unanswering).await;
    assert!((5..=7).contains(&reads), "{reads}");
    assert!(world.reach().is_some_and(|reach| !reach.is_up()));
    world.pass(14, unanswering).await;
    assert!(world.reach().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_machine_can_answer_before_it_is_judged_after_a_pause_of_this_process() {
    let (world, answering) = (ReporterWorld::new(), Sends { heartbeats: false, answers: true });
    for paused in [29, 90] {
        world.pass(60, answering).await;
        tokio::time::advance(Duration::from_secs(paused)).await;
        world.pass(60, answering).await;
        assert!(world.is_up(), "after {paused} s");
    }
    assert!(world.events().await.is_empty());
    tokio::time::advance(Duration::from_secs(29)).await;
    world.pass(20, Sends { answers: false, ..answering }).await;
    assert!(!world.is_up(), "it is judged with the next read");
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_noticed_within_half_a_minute_after_the_last_answer_and_its_end_within_five_seconds() {
    let (device, heard) = (MemoryDevices::default().device("r1"), Heard::default());
    let source = Arc::new(OneDevice(Arc::clone(&device)));
    let dependencies = Dependencies { source, recorder: heard.recorder(), ..dependencies() };
    let readers = MachineReaders(VirtualNodes::new(dependencies).shared());
    let reading = tokio::spawn(async move { readers.run(TriggerSender::new(|_| ())).await });
    assert_eq!(heard.in_minutes(5).await, [], "it was reached at the start");
    for outage in [30, 45, 600, 3600] {
        device.set_reachable(false);
        tokio::time::sleep(Duration::from_secs(30)).await;
        let reported: Vec<_> = heard.taken().into_iter().map(|(reason, _)| reason).collect();
        assert_eq!(reported, ["MachineUnreachable"]);
        tokio::time::sleep(Duration::from_secs(outage)).await;
        device.set_reachable(true);
        tokio::time::sleep(Duration::from_secs(5)).await;
        let reported: Vec<_> = heard.taken().into_iter().map(|(reason, _)| reason).collect();
        assert_eq!(reported, ["MachineReached"]);
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    reading.abort();
}

#[tokio::test(start_paused = true)]
async fn credentials_that_were_accepted_before_are_tried_every_minute_and_others_ever_more_seldom() {
    for accepted_before in [true, false] {
        let (device, heard) = (MemoryDevices::default().device("r1"), Heard::default());
        let source = Arc::new(OneDevice(Arc::clone(&device)));
        let dependencies = Dependencies { source, recorder: heard.recorder(), ..dependencies() };
        let readers = MachineReaders(VirtualNodes::new(dependencies).shared());
        let refuse = || {
            let refusal = DriverError::new(Reason::Refused, "log in").detail("401");
            device.faults().inject(AppHostingMethod::Resources, 5, Fault::Fail(refusal));
        };
        if !accepted_before {
            refuse();
        }
        let reading = tokio::spawn(async move { readers.run(TriggerSender::new(|_| ())).await });
        if accepted_before {
            tokio::time::sleep(Duration::from_secs(90)).await;
            assert_eq!(heard.taken(), []);
            refuse();
        }
        let reported = heard.in_minutes(6).await;
        let reasons: Vec<_> = reported.iter().map(|(reason, _)| *reason).collect();
        let expected: &[_] =
            if accepted_before { &["MachineUnreachable", "MachineReached"] } else { &["MachineUnreachable"] };
        assert_eq!(reasons, expected);
        assert!(reported[0].1.contains("cannot be read"), "{reported:?}");
        reading.abort();
    }
}
