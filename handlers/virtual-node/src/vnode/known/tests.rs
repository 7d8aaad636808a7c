//! Tests of the bases that a process knows.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Container;
use serde_json::json;
use staffetta_driver::tunnel::{PodKey, Tunnel, TunnelSender};
use staffetta_driver::{ContainerKey, DriverError, Reason};

use super::*;
use crate::vnode::base::NamedTunnel;
use crate::vnode::lease::replica_lease;
use crate::vnode::tracker::{OperationTracker, TrackerPolicy};

const TIMING: LeaseTiming = LeaseTiming {
    duration: Duration::from_secs(40),
    renewal: Duration::from_secs(10),
    retry: Duration::from_secs(2),
};

/// Returns the bases of a replica that has written Leases for some time.
fn known_to(replica: &str) -> KnownBases {
    let mut bases = KnownBases::new(replica.into(), TIMING, Duration::from_secs(60));
    bases.versions.record(0, at(0));
    bases
}

fn known() -> KnownBases {
    known_to("ours")
}

fn names(id: &str) -> (NodeId, Arc<str>) {
    (id.parse().unwrap(), format!("vnode.{id}.dev").into())
}

pub(in crate::vnode) fn described(status: &str) -> NodeDescription {
    serde_json::from_value(json!({ "metadata": { "name": "shop", "status": status.to_lowercase() } }))
        .unwrap()
}

fn at(seconds: u64) -> BootTime {
    BootTime::default() + Duration::from_secs(seconds)
}

/// Lets the replica take and renew all Leases that are free at this time.
fn take(bases: &mut KnownBases, version: u64, boot: BootTime) -> usize {
    let due = bases.due(|_| None, |_| false, false, (boot, Instant::now()));
    for (node, _) in &due {
        let seen = SeenLease::held(version, "ours");
        bases.written(node, &WriteResult::First(seen), boot);
    }
    due.len()
}

#[test]
fn a_base_that_introduces_itself_is_wanted_until_it_is_silent_or_ends() {
    let (mut bases, now) = (known(), Instant::now());
    let wanted = |bases: &mut KnownBases, now| {
        let boot = at(100);
        let due = bases.due(|_| None, |_| false, false, (boot, now)).len();
        bases.interrupted(at(0));
        // The delay of this replica has passed.
        let later = boot + Duration::from_secs(6);
        due.max(bases.due(|_| None, |_| false, false, (later, now)).len())
    };
    assert!(bases.introduced(names("a"), 0, &described("ACTIVATED"), now));
    assert_eq!(wanted(&mut bases, now), 1);
    bases.interrupted(at(0));
    assert_eq!(wanted(&mut bases, now + Duration::from_secs(60)), 0);
    bases.introduced(names("b"), 0, &described("ACTIVATED"), now);
    bases.introduced(names("b"), 0, &described("DEACTIVATED"), now);
    assert!(bases.introduced(names("c"), 0, &described("DEACTIVATED"), now));
    assert!(bases.get("vnode.c.dev").is_none(), "it ends before it was known");
    assert_eq!(bases.names().len(), 2);
    bases.expire(|_| false, now + Duration::from_secs(60));
    assert!(bases.names().is_empty());
}

#[test]
fn a_base_of_one_tunnel_cannot_be_changed_through_another_one() {
    let (mut bases, now) = (known(), Instant::now());
    bases.introduced(names("a"), 0, &described("ACTIVATED"), now);
    assert!(!bases.introduced(names("a"), 1, &described("DEACTIVATED"), now));
    assert!(bases.get("vnode.a.dev").unwrap().introduced.is_some());
}

#[test]
fn a_base_without_a_tunnel_is_taken_later_than_others_and_gets_the_tunnel_by_which_it_introduces_itself() {
    let (mut bases, now) = (known(), Instant::now());
    let profile = || BaseProfile { description: described("ACTIVATED"), marks: NodeMarks::default() };
    bases.add(names("old"), None, profile());
    bases.add(names("new"), Some(0), profile());
    let mut taken = |seconds| {
        let due = bases.due(|_| None, |_| true, false, (at(seconds), now));
        due.into_iter().map(|(node, _)| node.to_string()).collect::<Vec<_>>()
    };
    assert!(taken(100).is_empty());
    assert_eq!(taken(110), ["vnode.new.dev"]);
    assert_eq!(taken(170), ["vnode.old.dev"]);
    bases.add(names("other"), None, profile());
    assert!(bases.introduced(names("other"), 0, &described("ACTIVATED"), now));
    assert!(!bases.introduced(names("other"), 1, &described("ACTIVATED"), now));
}

#[test]
fn a_replica_begins_with_a_lease_and_ends_without_it() {
    let (mut bases, now) = (known(), Instant::now());
    bases.introduced(names("a"), 0, &described("ACTIVATED"), now);
    take(&mut bases, 1, at(100));
    take(&mut bases, 1, at(106));
    let later = now + Duration::from_secs(60);
    bases.expire(|_| false, later);
    assert_eq!(bases.names().len(), 1, "its Lease is held, and it is about to begin");
    assert!(
        matches!(&bases.held_changes(at(106))[..], [HeldChange::Begins(node)] if **node == *"vnode.a.dev")
    );
    assert!(bases.may_act("vnode.a.dev", at(135)) && !bases.may_act("vnode.a.dev", at(136)));
    assert!(!bases.may_act("vnode.other.dev", at(106)));
}

/// A tunnel to no base. It refuses to start a container called `bad`.
#[derive(Default)]
pub(in crate::vnode) struct NoTunnel {
    health_requests: AtomicUsize,
}

impl NoTunnel {
    pub(in crate::vnode) fn health_requests(&self) -> usize {
        self.health_requests.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Tunnel for NoTunnel {
    fn key(&self) -> &'static str {
        "none"
    }
    fn ready(&self) -> bool {
        true
    }
    async fn start(&self, _: &str, _: &str, _: TunnelSender) -> Result<(), DriverError> {
        std::future::pending().await
    }
    async fn fetch_health_data(&self, _: &NodeId) -> Result<(), DriverError> {
        self.health_requests.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
    async fn query_all_container_status_data(&self, _: &NodeId) -> Result<(), DriverError> {
        Ok(())
    }
    async fn start_container(
        &self,
        _: &NodeId,
        _: &PodKey,
        container: &Container,
    ) -> Result<(), DriverError> {
        if container.name == "bad" { Err(DriverError::new(Reason::Refused, "start it")) } else { Ok(()) }
    }
    async fn shutdown_container(&self, _: &NodeId, _: &PodKey, _: &Container) -> Result<(), DriverError> {
        Ok(())
    }
    fn get_container_unique_key(&self, _: &PodKey, container: &Container) -> ContainerKey {
        container.name.as_str().into()
    }
}

/// An API server with Leases, replicas that see them, and the time, which passes in ticks.
struct Cluster {
    now: BootTime,
    version: u64,
    leases: HashMap<Arc<str>, SeenLease>,
    replicas: HashMap<&'static str, KnownBases>,
    /// The results that are on their way to the replicas.
    results: Vec<(&'static str, Arc<str>, WriteResult)>,
    /// The number of nodes that each replica has given up.
    given_up: HashMap<&'static str, usize>,
}

const NODES: usize = 60;

impl Cluster {
    fn new() -> Self {
        Self {
            now: at(1000),
            version: 0,
            leases: HashMap::new(),
            replicas: HashMap::new(),
            results: Vec::new(),
            given_up: HashMap::new(),
        }
    }

    fn join(&mut self, replica: &'static str) {
        let mut bases = known_to(replica);
        for number in 0..NODES {
            let profile = BaseProfile { description: described("ACTIVATED"), marks: NodeMarks::default() };
            bases.add(names(&format!("b{number}")), Some(0), profile);
        }
        self.replicas.insert(replica, bases);
    }

    fn write(&mut self, replica: &'static str, name: Arc<str>, write: LeaseWrite) {
        let lease = self.leases.get(&name).cloned();
        let is_first = lease.is_none();
        let (matches, holder) = match (&lease, write) {
            (None, LeaseWrite::Create { .. } | LeaseWrite::Recreate) => (true, replica),
            (Some(lease), LeaseWrite::Replace { seen }) => (lease.version == seen.version, replica),
            (Some(lease), LeaseWrite::GiveUp { seen }) => (lease.version == seen.version, ""),
            _ => (false, ""),
        };
        let result = match lease {
            _ if matches => {
                self.version += 1;
                let lease = SeenLease::held(self.version, holder);
                self.leases.insert(Arc::clone(&name), lease.clone());
                if is_first { WriteResult::First(lease) } else { WriteResult::Written(lease) }
            }
            Some(lease) => WriteResult::Conflict(lease),
            None => WriteResult::Missing,
        };
        self.results.push((replica, name, result));
    }

    /// Lets a tick pass, and checks that no node is looked after twice.
    fn tick(&mut self, ready: bool) {
        self.now = self.now + ELECTION_INTERVAL;
        let now = self.now;
        for (replica, name, result) in std::mem::take(&mut self.results) {
            if let Some(bases) = self.replicas.get_mut(replica) {
                bases.written(&name, &result, now);
            }
        }
        let is_node = |name: &str| name.starts_with("vnode.");
        let mut writes = Vec::new();
        for (replica, bases) in &mut self.replicas {
            let of_replicas = self.leases.iter().filter(|(name, _)| !is_node(name));
            let of_replicas = of_replicas.map(|(name, lease)| (Arc::clone(name), lease.clone())).collect();
            bases.replicas.observe(of_replicas, now);
            let due =
                bases.due(|node| self.leases.get(node).cloned(), |_| true, ready, (now, Instant::now()));
            writes.extend(due.into_iter().map(|(name, write)| (*replica, name, write)));
            for (base, write) in bases.surplus(|_| true, now) {
                *self.given_up.entry(replica).or_default() += 1;
                writes.push((*replica, Arc::clone(&base.node), write));
            }
            for change in bases.held_changes(now) {
                if let HeldChange::Begins(node) = change {
                    let known = bases.get_mut(&node).unwrap();
                    known.base = Some(base(known));
                }
            }
        }
        for (replica, name, write) in writes {
            self.write(replica, name, write);
        }
        let acting = |node: &str| self.replicas.values().filter(|bases| bases.may_act(node, now)).count();
        for node in self.leases.keys().filter(|name| is_node(name)) {
            assert!(acting(node) <= 1, "{node} is looked after twice");
        }
    }

    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.tick(true);
        }
    }

    /// Returns the numbers of nodes of all replicas, the smallest first.
    fn shares(&self) -> Vec<usize> {
        let mut shares: Vec<_> = self.replicas.values().map(KnownBases::count).collect();
        shares.sort_unstable();
        shares
    }
}

fn base(known: &KnownBase) -> Arc<Base> {
    let names = (known.id.clone(), Arc::clone(&known.node));
    let tunnel = NamedTunnel { name: "none".into(), tunnel: Arc::new(NoTunnel::default()) };
    let limit = Duration::from_secs(330);
    let tracker =
        OperationTracker::new(TrackerPolicy::default(), staffetta_handler::Recorder::silent(), |_| {});
    Arc::new(Base::new(names, tunnel, known.profile.clone(), Arc::default(), tracker, limit))
}

#[test]
fn the_only_replica_gives_no_node_up_when_another_base_ends() {
    let (mut bases, now) = (known(), Instant::now());
    for id in ["a", "b"] {
        bases.introduced(names(id), 0, &described("ACTIVATED"), now);
    }
    take(&mut bases, 1, at(100));
    take(&mut bases, 1, at(106));
    for change in bases.held_changes(at(106)) {
        if let HeldChange::Begins(node) = change {
            let known = bases.get_mut(&node).unwrap();
            known.base = Some(base(known));
        }
    }
    bases.introduced(names("a"), 0, &described("DEACTIVATED"), now);
    bases.due(|_| None, |_| false, false, (at(107), now));
    assert_eq!(bases.all_held().count(), 2);
    assert!(bases.surplus(|_| true, at(107)).is_empty());
}

#[tokio::test]
async fn bases_that_have_not_answered_move_no_node_to_another_replica() {
    let (mut bases, now) = (known(), Instant::now());
    for number in 0..30 {
        bases.introduced(names(&format!("b{number}")), 0, &described("ACTIVATED"), now);
    }
    // Ten bases each: of another replica, with a node here, and without an answer.
    let is_among =
        |node: &str, from: usize| (from..from + 10).any(|number| *names(&format!("b{number}")).1 == *node);
    let lease = |node: &str| is_among(node, 0).then(|| SeenLease::held(1, "theirs"));
    for boot in [at(100), at(106)] {
        for (node, _) in bases.due(lease, |_| false, false, (boot, now)) {
            bases.written(&node, &WriteResult::First(SeenLease::held(1, "ours")), boot);
        }
    }
    for change in bases.held_changes(at(106)) {
        let HeldChange::Begins(node) = change else { continue };
        let known = bases.get_mut(&node).unwrap();
        let base = base(known);
        if is_among(&node, 20) {
            base.await_answer();
        }
        known.base = Some(base);
    }
    assert_eq!(bases.all_held().count(), 20);
    let movable = |node: &str| is_among(node, 10);
    assert!(bases.surplus(movable, at(106)).is_empty());
    assert_eq!(bases.all_held().filter(|base| base.end_wait_for_answer()).count(), 10);
    assert_eq!(bases.surplus(movable, at(106)).len(), 1);
}

#[test]
fn replicas_that_join_get_their_shares_a_few_nodes_in_each_period() {
    let mut cluster = Cluster::new();
    cluster.join("a");
    cluster.pass(TIMING.renewal * 2);
    assert_eq!(cluster.shares(), [NODES]);
    cluster.join("b");
    cluster.join("c");
    let most = FairShare::new(NODES, 3).moved_in_a_period();
    for _ in 0..10 {
        let before = cluster.given_up.get("a").copied().unwrap_or_default();
        cluster.pass(TIMING.renewal);
        let moved = cluster.given_up.get("a").copied().unwrap_or_default() - before;
        // One period of the replica overlaps two of the test.
        assert!(moved <= most + 1, "{moved} nodes at once");
    }
    let shares = cluster.shares();
    assert_eq!(shares.iter().sum::<usize>(), NODES, "{shares:?}");
    assert!(shares[2] <= NODES / 3 + NODES / 3 / 10, "{shares:?}");
    assert!(shares[0] >= NODES / 4, "{shares:?}");
    let moved: usize = cluster.given_up.values().sum();
    cluster.pass(TIMING.renewal * 10);
    assert_eq!(cluster.given_up.values().sum::<usize>(), moved, "they stay where they are");
}

#[test]
fn a_node_that_is_to_move_but_whose_lease_was_deleted_is_not_looked_after_any_more() {
    let mut cluster = Cluster::new();
    cluster.join("a");
    cluster.pass(TIMING.renewal * 2);
    cluster.join("b");
    cluster.tick(true);
    cluster.tick(true);
    let now = cluster.now;
    let bases = cluster.replicas.get_mut("a").unwrap();
    let known = bases.by_node.values_mut().find(|known| known.election.may_act(now)).unwrap();
    known.election.begin(now);
    known.election.finish(&WriteResult::Missing, now);
    let node = Arc::clone(&known.node);
    let surplus = bases.surplus(|other| *other == *node, now + TIMING.renewal);
    assert!(surplus.is_empty(), "there is no Lease to give up");
    let ended = bases.held_changes(now);
    assert!(matches!(&ended[..], [HeldChange::Ends(ended, _)] if *ended == node), "the base was forgotten");
}

#[test]
fn the_share_of_a_replica_that_dies_while_it_gets_it_is_taken_over() {
    let mut cluster = Cluster::new();
    cluster.join("a");
    cluster.join("b");
    cluster.pass(TIMING.renewal * 2);
    cluster.join("c");
    cluster.pass(TIMING.renewal * 2);
    assert!(cluster.replicas["c"].count() > 0);
    cluster.replicas.remove("c");
    cluster.pass(TIMING.duration + Duration::from_secs(10));
    assert_eq!(cluster.shares().iter().sum::<usize>(), NODES);
    assert!(cluster.shares()[0] >= NODES / 2 - NODES / 2 / 5, "{:?}", cluster.shares());
}

#[test]
fn what_was_given_up_for_a_replica_that_died_at_once_is_taken_again() {
    let mut cluster = Cluster::new();
    cluster.join("a");
    cluster.pass(TIMING.renewal * 2);
    cluster.join("b");
    cluster.tick(true);
    cluster.tick(true);
    assert!(cluster.leases.keys().any(|name| name.starts_with("staffetta-replica-")), "it says it is there");
    cluster.replicas.remove("b");
    cluster.pass(TIMING.duration + Duration::from_secs(10));
    assert_eq!(cluster.shares(), [NODES]);
    let expired = cluster.replicas.get_mut("a").unwrap().replicas.expired(cluster.now);
    assert!(expired.iter().any(|(name, _)| **name == *replica_lease("b")), "its Lease is to be deleted");
}

#[test]
fn a_replica_that_hears_no_bases_gets_none_of_others() {
    let mut cluster = Cluster::new();
    cluster.join("a");
    cluster.pass(TIMING.renewal * 2);
    cluster.join("b");
    for _ in 0..100 {
        cluster.tick(false);
    }
    assert_eq!(cluster.shares(), [0, NODES]);
}
