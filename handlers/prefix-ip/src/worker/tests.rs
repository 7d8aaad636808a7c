use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use async_trait::async_trait;
use ipnet::Ipv4Net;
use parking_lot::Mutex;
use staffetta_driver::prefix::{BlockKind, PrimaryInterface};
use staffetta_driver::{RequestRecord, SubnetId, Uid};
use staffetta_handler::HandlerError;
use staffetta_memory::{Fault, MemoryPrefixes, PrefixCalls, PrefixMethod};
use staffetta_pool::Wait;

use super::*;
use crate::node_pool::PodAddress;
use crate::nodes::KnownPod;
use crate::settings::Settings;
use crate::targets::Targets;

const COOL_DOWN: Duration = Duration::from_secs(30);
const NODE: &str = "win-1";

fn settings() -> Settings {
    Settings {
        enabled: true,
        prefix_delegation: true,
        prefixes: Targets::Addresses { warm: 1, minimum: 3 },
        addresses: Targets::Addresses { warm: 3, minimum: 3 },
    }
}

/// A cloud with one subnet, the nodes in it, and what was reported.
struct World {
    cloud: Arc<MemoryPrefixes>,
    nodes: Arc<NodeTable>,
    reports: Arc<Mutex<Vec<String>>>,
}

/// The annotations of a cluster in which no pod has any.
struct NoAnnotations;

#[async_trait]
impl PublishedAddresses for NoAnnotations {
    async fn published_addresses(&self) -> Result<BTreeSet<Ipv4Addr>, HandlerError> {
        Ok(BTreeSet::new())
    }
}

/// A cloud to which each assignment is one request.
struct Remote(Arc<MemoryPrefixes>);

#[async_trait]
impl PrefixProvider for Remote {
    async fn interfaces(
        &self,
        instances: &[InstanceId],
    ) -> Result<BTreeMap<InstanceId, PrimaryInterface>, DriverError> {
        self.0.interfaces(instances).await
    }

    async fn assign(&self, interface: &InterfaceId, kind: BlockKind, count: usize) -> Assigned {
        let assigned = self.0.assign(interface, kind, count).await;
        let status = if assigned.error.is_none() { 200 } else { 400 };
        RequestRecord::start("POST", "AssignPrivateIpAddresses", true).set_status(status);
        assigned
    }

    async fn unassign(&self, interface: &InterfaceId, blocks: &[Ipv4Net]) -> Result<(), DriverError> {
        self.0.unassign(interface, blocks).await
    }
}

impl World {
    async fn new(range: &str) -> Self {
        let cloud = Arc::new(MemoryPrefixes::default());
        cloud.add_subnet(&subnet(), range.parse().unwrap());
        let world = Self { cloud, nodes: Arc::new(NodeTable::new(COOL_DOWN)), reports: Arc::default() };
        world.add(NODE, Vec::new()).await;
        let reports = Arc::clone(&world.reports);
        let worker = Worker {
            provider: Arc::new(Remote(Arc::clone(&world.cloud))),
            nodes: Arc::clone(&world.nodes),
            published: Arc::new(NoAnnotations),
            resync_interval: Duration::from_secs(300),
            report: Box::new(move |node, report| reports.lock().push(format!("{node}: {report:?}"))),
        };
        tokio::spawn(async move { worker.run().await });
        world
    }

    async fn add(&self, node: &str, pods: Vec<KnownPod>) -> Vec<(KnownPod, Uid)> {
        let instance = InstanceId::from(format!("i-{node}"));
        if !self.nodes.contains(node, &instance) {
            self.cloud.add_machine(&instance, &subnet(), 10, true);
        }
        let interface =
            self.cloud.interfaces(std::slice::from_ref(&instance)).await.unwrap().remove(&instance).unwrap();
        self.nodes.add(node, &instance, &interface, settings, || pods)
    }

    fn take(&self, pod: &str) -> Result<PodAddress, Wait> {
        self.nodes.take(NODE, &Uid::from(pod)).unwrap()
    }

    /// The statuses of the requests that are kept with the node.
    fn statuses(&self) -> Vec<Option<u16>> {
        self.nodes.failed_requests(NODE).into_iter().map(|request| request.status).collect()
    }

    /// Delays the next assignment for which no fault is planned yet.
    fn delay_next(&self, seconds: u64) {
        let delay = Fault::Delay(Duration::from_secs(seconds));
        self.cloud.faults().inject(PrefixMethod::Assign, 1, delay);
    }

    fn reports(&self) -> Vec<String> {
        std::mem::take(&mut self.reports.lock())
    }
}

fn subnet() -> SubnetId {
    "subnet-1".into()
}

/// Lets `seconds` pass on the paused clock.
async fn pass(seconds: u64) {
    sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_warm_address_needs_no_call_of_the_provider() {
    let world = World::new("10.0.0.0/24").await;
    pass(1).await;
    let calls = world.cloud.calls();
    assert_eq!(calls, PrefixCalls { interfaces: 1, assign: 1, unassign: 0 });
    let taken: Vec<_> = (0..15).map(|pod| world.take(&format!("pod-{pod}")).unwrap().address).collect();
    assert_eq!(taken.iter().collect::<BTreeSet<_>>().len(), 15);
    pass(1).await;
    assert_eq!(world.cloud.calls(), calls);
    world.take("pod-15").unwrap();
    pass(1).await;
    assert_eq!(world.cloud.calls().assign, 2, "the next prefix is assigned before a pod needs it");
}

#[tokio::test(start_paused = true)]
async fn a_surplus_is_removed_when_it_has_lasted_for_four_cool_downs() {
    let world = World::new("10.0.0.0/24").await;
    pass(1).await;
    for pod in 0..16 {
        world.take(&format!("pod-{pod}")).unwrap();
    }
    pass(1).await;
    assert_eq!(world.cloud.blocks().len(), 2);
    for pod in 0..16 {
        world.nodes.give_back(NODE, &format!("pod-{pod}").into());
    }
    // The addresses cool down first.
    pass(149).await;
    assert_eq!(world.cloud.blocks().len(), 2);
    pass(2).await;
    assert_eq!(world.cloud.blocks().len(), 1);
    assert_eq!(world.reports(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn an_exhausted_subnet_is_asked_every_thirty_seconds_for_all_of_its_nodes_together_and_serves_again() {
    // A /27 without its reserved addresses has no free prefix.
    let world = World::new("10.0.0.0/27").await;
    pass(1).await;
    assert!(matches!(world.take("pod-1"), Err(Wait::BackingOff(_))), "{:?}", world.take("pod-1"));
    let before = world.cloud.calls().assign;
    pass(300).await;
    let calls = world.cloud.calls().assign - before;
    assert!((5..=11).contains(&calls), "{calls}");
    assert!(world.reports()[0].contains("NoAddress"));
    assert_eq!(world.nodes.metrics().exhausted_subnets, 1);
    assert_eq!(world.statuses(), [Some(400); 10], "the last ones are kept with the node");
    world.cloud.add_subnet(&subnet(), "10.0.1.0/24".parse().unwrap());
    pass(31).await;
    assert!(world.take("pod-1").is_ok());
    assert_eq!(world.nodes.metrics().exhausted_subnets, 0);
    assert_eq!(world.statuses(), []);
}

#[tokio::test(start_paused = true)]
async fn of_fewer_blocks_than_requested_a_node_gets_as_many_as_its_pods_need_and_then_one_by_one() {
    // A /26 has two free prefixes between its reserved addresses.
    let world = World::new("10.0.0.0/26").await;
    let prefixes = Targets::Blocks(3);
    world.nodes.configure(Settings { prefixes, ..settings() });
    assert_eq!(world.take("pod-1"), Err(Wait::Growing));
    pass(1).await;
    assert!(world.take("pod-1").is_ok());
    assert_eq!(world.cloud.blocks().len(), 2, "it gets all that there are");
    let reports = world.reports();
    assert!(
        matches!(&reports[..], [one] if one.contains("NoAddress")),
        "only that there is none left: {reports:?}"
    );
    assert!(world.cloud.calls().assign < 8, "{:?}", world.cloud.calls());
    pass(300).await;
    assert!(world.cloud.calls().assign < 20, "{:?}", world.cloud.calls());
    world.cloud.add_subnet(&subnet(), "10.0.1.0/24".parse().unwrap());
    pass(31).await;
    assert_eq!(world.cloud.blocks().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_stays_too_large_goes_down_to_one_block_at_once() {
    // A /26 has two free prefixes between its reserved addresses, and pods for seven wait.
    let world = World::new("10.0.0.0/26").await;
    for pod in 0..112 {
        let _ = world.take(&format!("pod-{pod}"));
    }
    pass(2).await;
    assert_eq!(world.cloud.blocks().len(), 2);
    assert!(world.cloud.calls().assign < 8, "{:?}", world.cloud.calls());
    world.cloud.add_subnet(&subnet(), "10.0.1.0/24".parse().unwrap());
    pass(40).await;
    assert_eq!(world.cloud.blocks().len(), 8, "and then up again");
    assert!(world.cloud.calls().assign < 14, "{:?}", world.cloud.calls());
}

#[tokio::test(start_paused = true)]
async fn a_request_for_many_blocks_keeps_no_other_node_of_the_subnet_from_one() {
    let world = World::new("10.0.0.0/26").await;
    pass(1).await;
    assert_eq!(world.cloud.blocks().len(), 1);
    for pod in 0..60 {
        let _ = world.take(&format!("pod-{pod}"));
    }
    // The call of the first node, for three blocks, is refused late.
    world.delay_next(5);
    pass(1).await;
    world.add("win-2", Vec::new()).await;
    pass(2).await;
    let other = world.nodes.take("win-2", &Uid::from("pod-2"));
    assert!(other.is_some_and(|taken| taken.is_ok()));
    assert_eq!(world.reports(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn an_interface_with_fewer_slots_than_expected_is_read_and_filled() {
    let world = World::new("10.0.0.0/24").await;
    pass(1).await;
    // Somebody else has taken five of the nine slots.
    let others = world.cloud.assign(&"eni-i-win-1".into(), BlockKind::Prefix, 5).await;
    assert_eq!(others.blocks.len(), 5);
    for pod in 0..100 {
        let _ = world.take(&format!("pod-{pod}"));
    }
    pass(61).await;
    let served = (0..100).filter(|pod| world.take(&format!("pod-{pod}")).is_ok()).count();
    assert_eq!((served, world.cloud.blocks().len()), (100, 9));
}

#[tokio::test(start_paused = true)]
async fn blocks_whose_removal_is_refused_or_unanswered_serve_pods_again() {
    for answered in [true, false] {
        let world = World::new("10.0.0.0/24").await;
        let (small, node) = (InstanceId::from("i-small"), "small");
        world.cloud.add_machine(&small, &subnet(), 4, true);
        let read = world.cloud.interfaces(std::slice::from_ref(&small)).await.unwrap();
        let three = Settings { prefixes: Targets::Blocks(3), ..settings() };
        world.nodes.add(node, &small, &read[&small], || three, Vec::new);
        pass(1).await;
        let refused = DriverError::new(Reason::Refused, "remove");
        let refused = if answered { refused } else { refused.maybe_applied() };
        world.cloud.faults().inject(PrefixMethod::Unassign, 1000, Fault::Fail(refused));
        world.nodes.configure(settings());
        pass(150).await;
        assert!(world.cloud.calls().unassign > 0);
        let take = |pod: usize| world.nodes.take(node, &Uid::from(format!("pod-{pod}"))).unwrap();
        for pod in 0..40 {
            assert_ne!(take(pod).err(), Some(Wait::Full), "it is not the machine");
        }
        pass(40).await;
        assert_eq!((0..40).filter(|pod| take(*pod).is_ok()).count(), 40, "answered: {answered}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_assignment_is_forgotten_when_no_pod_needs_it_any_more() {
    let world = World::new("10.0.0.0/27").await;
    let prefixes = Targets::Addresses { warm: 0, minimum: 0 };
    world.nodes.configure(Settings { prefixes, ..settings() });
    pass(1).await;
    world.take("pod-1").unwrap_err();
    pass(31).await;
    assert!(!world.statuses().is_empty());
    world.nodes.give_back(NODE, &"pod-1".into());
    pass(1).await;
    assert_eq!(world.statuses(), []);
}

#[tokio::test(start_paused = true)]
async fn the_subnet_that_was_deleted_is_reported_and_pods_keep_what_they_have() {
    let world = World::new("10.0.0.0/24").await;
    pass(1).await;
    let taken: Vec<_> = (0..15).map(|pod| world.take(&format!("pod-{pod}")).unwrap()).collect();
    world.cloud.remove_subnet(&subnet());
    assert!(world.take("pod-15").is_ok(), "it was assigned before");
    assert!(world.take("pod-16").is_err());
    pass(60).await;
    assert!(world.reports().iter().any(|report| report.contains("the subnet does not exist")));
    assert_eq!(world.take("pod-0"), Ok(taken[0]));
    assert!(world.cloud.calls().assign < 10, "the attempts back off: {:?}", world.cloud.calls());
    world.cloud.add_subnet(&subnet(), "10.0.1.0/24".parse().unwrap());
    pass(300).await;
    assert!(world.take("pod-16").is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_slow_call_for_one_node_delays_no_other() {
    let world = World::new("10.0.0.0/24").await;
    world.delay_next(1000);
    pass(1).await;
    assert_eq!(world.take("pod-1"), Err(Wait::Growing));
    world.add("win-2", Vec::new()).await;
    pass(1).await;
    let other = world.nodes.take("win-2", &Uid::from("pod-2"));
    assert!(other.is_some_and(|taken| taken.is_ok()));
}

#[tokio::test(start_paused = true)]
async fn other_targets_take_effect_at_once_and_take_no_address_from_a_pod() {
    let world = World::new("10.0.0.0/24").await;
    pass(1).await;
    let taken = world.take("pod-1");
    let with = |prefixes| world.nodes.configure(Settings { prefixes, ..settings() });
    with(Targets::Blocks(3));
    pass(1).await;
    assert_eq!(world.cloud.blocks().len(), 4, "three wholly free ones");
    with(Targets::Addresses { warm: 1, minimum: 3 });
    pass(200).await;
    assert_eq!(world.cloud.blocks().len(), 1);
    assert_eq!(world.take("pod-1"), taken);
}

#[tokio::test(start_paused = true)]
async fn throttling_is_waited_for_and_reported() {
    let world = World::new("10.0.0.0/24").await;
    let throttled = DriverError::new(Reason::Unavailable, "assign").after(Duration::from_secs(20));
    world.cloud.faults().inject(PrefixMethod::Assign, 1, Fault::Fail(throttled));
    pass(19).await;
    assert_eq!((world.cloud.calls().assign, world.cloud.blocks().len()), (1, 0));
    pass(2).await;
    assert_eq!((world.cloud.calls().assign, world.cloud.blocks().len()), (2, 1));
    assert!(world.reports()[0].starts_with("win-1: Failed("));
}

#[tokio::test(start_paused = true)]
async fn a_partial_assignment_is_used_and_the_rest_is_assigned_next() {
    let world = World::new("10.0.0.0/24").await;
    world.nodes.configure(Settings { prefixes: Targets::Blocks(3), ..settings() });
    world.cloud.limit_next_assignment(1);
    pass(1).await;
    assert_eq!((world.cloud.calls().assign, world.cloud.blocks().len()), (2, 3));
    assert_eq!(world.reports(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_block_whose_assignment_was_not_answered_is_found_by_a_read_and_not_lost() {
    let world = World::new("10.0.0.0/24").await;
    let lost = DriverError::new(Reason::Unavailable, "assign");
    world.cloud.faults().inject(PrefixMethod::Assign, 1, Fault::DoneThenFail(lost));
    pass(19).await;
    assert_eq!(
        world.cloud.calls(),
        PrefixCalls { interfaces: 2, assign: 1, unassign: 0 },
        "it is searched first"
    );
    pass(221).await;
    let known: BTreeSet<_> = world.cloud.blocks();
    assert_eq!(known.len(), 1, "the one too many was found and removed");
    assert!(world.reports().iter().any(|report| report.contains("found")));
    assert!(world.take("pod-1").is_ok_and(|taken| known.iter().any(|block| block.contains(&taken.address))));
}

#[tokio::test(start_paused = true)]
async fn a_read_during_a_change_does_not_count_as_one() {
    let world = World::new("10.0.0.0/24").await;
    // The first read does not show the block of the pod yet, and the second one begins during an assignment.
    world.cloud.freeze_reads(true);
    let assigned = world.cloud.assign(&"eni-i-win-1".into(), BlockKind::Prefix, 1).await;
    let address = assigned.blocks[0].network();
    let pod = KnownPod { uid: "pod-1".into(), address, uses_it: false, created: String::new() };
    assert_eq!(world.add(NODE, vec![pod]).await, []);
    world.cloud.freeze_reads(false);
    world.delay_next(18);
    pass(19).await;
    assert_eq!(world.take("pod-1"), Err(Wait::Growing), "no read was complete yet");
    pass(20).await;
    assert_eq!(world.take("pod-1").map(|taken| taken.address), Ok(address));
}

#[tokio::test(start_paused = true)]
async fn a_late_result_of_a_replaced_node_changes_nothing_on_the_new_one() {
    let world = World::new("10.0.0.0/24").await;
    let instance = InstanceId::from("i-new");
    world.cloud.add_machine(&instance, &subnet(), 10, true);
    let read = world.cloud.interfaces(std::slice::from_ref(&instance)).await.unwrap();
    world.delay_next(10);
    world.delay_next(60);
    pass(1).await;
    world.nodes.add(NODE, &instance, &read[&instance], settings, Vec::new);
    pass(20).await;
    assert_eq!(world.cloud.blocks().len(), 1, "the first machine has it");
    assert_eq!(world.take("pod-1"), Err(Wait::Growing));
}

#[tokio::test(start_paused = true)]
async fn a_late_failure_of_a_replaced_node_is_no_failure_of_the_new_one() {
    let world = World::new("10.0.0.0/24").await;
    let instance = InstanceId::from("i-new");
    world.cloud.add_machine(&instance, &subnet(), 10, true);
    let read = world.cloud.interfaces(std::slice::from_ref(&instance)).await.unwrap();
    world.delay_next(10);
    world.delay_next(60);
    pass(1).await;
    world.nodes.add(NODE, &instance, &read[&instance], settings, Vec::new);
    world.cloud.remove_machine(&"i-win-1".into());
    pass(20).await;
    assert_eq!(world.reports(), [""; 0]);
    assert_eq!(world.statuses(), []);
}

#[tokio::test(start_paused = true)]
async fn another_type_of_the_machine_changes_the_capacity_of_its_node_with_the_next_read() {
    let world = World::new("10.0.0.0/24").await;
    assert_eq!(world.nodes.capacity(NODE), Some(144));
    let instance = InstanceId::from("i-win-1");
    world.cloud.remove_machine(&instance);
    world.cloud.add_machine(&instance, &subnet(), 5, true);
    pass(301).await;
    assert_eq!(world.nodes.capacity(NODE), Some(64));
}

#[tokio::test(start_paused = true)]
async fn a_subnet_without_a_prefix_still_gives_single_addresses() {
    let world = World::new("10.0.0.0/27").await;
    pass(1).await;
    assert!(world.take("pod-1").is_err());
    world.nodes.configure(Settings { prefix_delegation: false, ..settings() });
    pass(1).await;
    assert!(world.take("pod-1").is_ok());
    assert_eq!(world.nodes.metrics().exhausted_subnets, 1);
    pass(31).await;
    assert_eq!(world.nodes.metrics().exhausted_subnets, 0, "no node requests prefixes any more");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_node_is_forgotten_unless_another_one_with_its_name_has_the_machine() {
    let world = World::new("10.0.0.0/27").await;
    pass(1).await;
    world.nodes.remove(NODE, Some(&"i-win-1".into()));
    assert!(world.nodes.contains(NODE, &"i-win-1".into()));
    assert_eq!(world.nodes.metrics().exhausted_subnets, 1);
    world.nodes.remove(NODE, Some(&"i-new".into()));
    assert_eq!(world.nodes.take(NODE, &"pod-1".into()), None, "the addresses were those of the old machine");
    assert_eq!(world.nodes.metrics().exhausted_subnets, 0);
}

#[tokio::test(start_paused = true)]
async fn a_block_that_somebody_removed_is_reported_with_its_pods_and_replaced() {
    let world = World::new("10.0.0.0/24").await;
    pass(1).await;
    let taken = world.take("pod-1").unwrap();
    let block = *world.cloud.blocks().first().unwrap();
    world.cloud.remove_block(block);
    pass(320).await;
    let reports = world.reports();
    assert!(reports[0].contains(&format!("({}, Uid(\"pod-1\"))", taken.address)), "{reports:?}");
    assert_eq!(world.cloud.blocks().len(), 1, "there is another one for the next pod");
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_gone_gives_no_address_after_two_reads_and_harms_no_other() {
    let world = World::new("10.0.0.0/24").await;
    world.add("win-2", Vec::new()).await;
    pass(1).await;
    world.cloud.remove_machine(&"i-win-2".into());
    pass(300).await;
    assert!(world.nodes.contains("win-2", &"i-win-2".into()), "one read may be wrong");
    pass(20).await;
    assert_eq!(world.nodes.take("win-2", &"pod-2".into()), None);
    assert_eq!((world.nodes.capacity("win-2"), world.reports()), (Some(0), vec![]), "the handler reports it");
    assert!(world.take("pod-1").is_ok());
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_pods_have_their_addresses_and_a_forged_annotation_has_none() {
    let world = World::new("10.0.0.0/24").await;
    pass(1).await;
    let address = world.take("pod-1").unwrap().address;
    let known = |uid: &str, address, uses_it, created: &str| KnownPod {
        uid: uid.into(),
        address,
        uses_it,
        created: created.into(),
    };
    let pods = vec![
        known("forged", address, false, "2026-01-01T00:00:00Z"),
        known("pod-1", address, true, "2026-01-02T00:00:00Z"),
        known("elsewhere", Ipv4Addr::new(192, 0, 2, 1), false, "2026-01-03T00:00:00Z"),
    ];
    let shared = world.add(NODE, pods.clone()).await;
    assert_eq!(shared, [(pods[0].clone(), "pod-1".into())], "the one that uses it keeps it");
    assert_eq!(world.take("pod-1").map(|taken| taken.address), Ok(address));
    assert!(world.take("forged").is_err(), "all others are in their cool-down");
    pass(31).await;
    assert!(world.take("forged").is_ok_and(|taken| taken.address != address));
}

#[tokio::test(start_paused = true)]
async fn of_many_nodes_in_an_exhausted_subnet_one_asks_again_and_all_are_served_when_it_succeeds() {
    let world = World::new("10.0.0.0/27").await;
    for number in 2..12 {
        world.add(&format!("win-{number}"), Vec::new()).await;
    }
    pass(1).await;
    let before = world.cloud.calls().assign;
    pass(300).await;
    let calls = world.cloud.calls().assign - before;
    assert!((5..=25).contains(&calls), "eleven nodes asked {calls} times");
    world.cloud.add_subnet(&subnet(), "10.0.0.0/16".parse().unwrap());
    pass(31).await;
    assert_eq!(world.cloud.blocks().len(), 11);
}
