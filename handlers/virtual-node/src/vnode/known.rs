//! The bases that this process knows, and those that it looks after.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use staffetta_driver::tunnel::{NodeActivation, NodeDescription, NodeId};
use tokio::time::Instant;

use super::base::{Base, BaseProfile};
use super::clock::BootTime;
use super::lease::{LeaseElection, LeaseTiming, LeaseWrite, SeenLease, WriteResult};
use crate::node::NodeMarks;

/// The maximum delay by which a process that looks after many nodes lets others take a free one.
const MAX_DELAY: Duration = Duration::from_secs(4);

/// The range of the delays by which replicas with the same share of the nodes differ. It is several times the interval at
/// which Leases are looked at.
const TIE_BREAK: Duration = Duration::from_secs(2);

/// A base that this process knows, from its own reports or from its Node object.
pub(super) struct KnownBase {
    pub(super) id: NodeId,
    /// The index of its tunnel.
    pub(super) tunnel: usize,
    /// The name of its node.
    pub(super) node: Arc<str>,
    pub(super) election: LeaseElection,
    /// The description and the marks that it reported last.
    pub(super) said: BaseProfile,
    /// The time at which it introduced itself last to this process; `None` if it did not, or said that it ends.
    pub(super) introduced: Option<Instant>,
    /// The base, while this process looks after it.
    pub(super) base: Option<Arc<Base>>,
}

/// The bases that this process knows, by the name of their node.
pub(super) struct KnownBases {
    replica: String,
    timing: LeaseTiming,
    /// The time after its introduction during which a base without a Node object is to get one.
    alive: Duration,
    by_node: HashMap<Arc<str>, KnownBase>,
}

/// A change of the bases that this process looks after.
pub(super) enum Duty {
    /// This process holds the Lease of the node from now on.
    Begins(Arc<str>),
    /// It does not hold the Lease any more.
    Ends(Arc<str>, Arc<Base>),
}

impl KnownBases {
    pub(super) fn new(replica: String, timing: LeaseTiming, alive: Duration) -> Self {
        Self { replica, timing, alive, by_node: HashMap::new() }
    }

    /// Returns the base of a node.
    pub(super) fn get(&self, node: &str) -> Option<&KnownBase> {
        self.by_node.get(node)
    }

    /// Returns the base of a node, to change it.
    pub(super) fn get_mut(&mut self, node: &str) -> Option<&mut KnownBase> {
        self.by_node.get_mut(node)
    }

    /// Returns the base of a node while this process looks after it.
    pub(super) fn held(&self, node: &str) -> Option<&Arc<Base>> {
        self.by_node.get(node)?.base.as_ref()
    }

    /// Returns all bases that this process looks after.
    pub(super) fn all_held(&self) -> impl Iterator<Item = &Arc<Base>> {
        self.by_node.values().filter_map(|known| known.base.as_ref())
    }

    /// Returns `true` while this process may act for the node.
    pub(super) fn may_act(&self, node: &str, now: BootTime) -> bool {
        self.by_node.get(node).is_some_and(|known| known.election.may_act(now))
    }

    /// Adds a base, unless it is known.
    pub(super) fn add(&mut self, (id, node): (NodeId, Arc<str>), tunnel: usize, said: BaseProfile) {
        let timing = LeaseTiming { renewal: spread(self.timing.renewal, &node), ..self.timing };
        let election = LeaseElection::new(&self.replica, timing);
        self.by_node.entry(Arc::clone(&node)).or_insert_with(|| KnownBase {
            id,
            tunnel,
            node,
            election,
            said,
            introduced: None,
            base: None,
        });
    }

    /// Records that a base introduced itself by a tunnel, or said that it ends. Returns `false` if the base belongs to another
    /// tunnel.
    pub(super) fn introduced(
        &mut self,
        (id, node): (NodeId, Arc<str>),
        tunnel: usize,
        description: NodeDescription,
        now: Instant,
    ) -> bool {
        let ends = description.metadata.status == NodeActivation::Deactivated;
        if !self.by_node.contains_key(&node) {
            if ends {
                return true;
            }
            let said = BaseProfile { description: description.clone(), marks: NodeMarks::default() };
            self.add((id, Arc::clone(&node)), tunnel, said);
        }
        let Some(known) = self.by_node.get_mut(&node).filter(|known| known.tunnel == tunnel) else {
            return false;
        };
        known.introduced = (!ends).then_some(now);
        if !ends {
            known.said.description = description;
        }
        true
    }

    /// Returns the writes to Leases that are due, after recording the newest state of each Lease. `lease` returns that state,
    /// and `exists` whether the Node object of a base exists.
    pub(super) fn due(
        &mut self,
        lease: impl Fn(&str) -> Option<SeenLease>,
        exists: impl Fn(&str) -> bool,
        (boot, now): (BootTime, Instant),
    ) -> Vec<(Arc<str>, LeaseWrite)> {
        let held = self.by_node.values().filter(|known| known.election.until().is_some()).count();
        let all = self.by_node.len();
        let share = u32::try_from(held * 100 / all.max(1)).unwrap_or(100);
        let mut due = Vec::new();
        for (node, known) in &mut self.by_node {
            if let Some(seen) = lease(node) {
                known.election.observe(&seen, boot);
            }
            let alive = known.introduced.is_some_and(|at| now.saturating_duration_since(at) < self.alive);
            let wanted = alive || exists(node);
            let delay = MAX_DELAY * share / 100 + tie_break(&self.replica, node);
            if let Some(write) = known.election.next(wanted, delay, boot) {
                known.election.begin(boot);
                due.push((Arc::clone(node), write));
            }
        }
        due
    }

    /// Records the result of a write to a Lease.
    pub(super) fn written(&mut self, node: &str, result: &WriteResult, now: BootTime) {
        if let Some(known) = self.by_node.get_mut(node) {
            known.election.finish(result, now);
        }
    }

    /// Records that the results of all writes under way will not be known.
    pub(super) fn interrupted(&mut self, now: BootTime) {
        self.by_node.values_mut().for_each(|known| known.election.finish(&WriteResult::Failed, now));
    }

    /// Returns the nodes whose Lease this process has taken or lost since the last call. Those lost are no longer held.
    pub(super) fn duties(&mut self, now: BootTime) -> Vec<Duty> {
        let mut duties = Vec::new();
        for (node, known) in &mut self.by_node {
            let acts = known.election.may_act(now);
            match (&known.base, acts) {
                (None, true) => duties.push(Duty::Begins(Arc::clone(node))),
                (Some(_), false) => {
                    duties.extend(known.base.take().map(|base| Duty::Ends(Arc::clone(node), base)));
                }
                _ => {}
            }
        }
        duties
    }

    /// Forgets bases that this process does not look after, that have no Node object, and that have not introduced themselves
    /// for a while. Returns the names of their nodes.
    pub(super) fn expire(&mut self, exists: impl Fn(&str) -> bool, now: Instant) -> Vec<Arc<str>> {
        let mut expired = Vec::new();
        let alive = self.alive;
        self.by_node.retain(|node, known| {
            let recent = known.introduced.is_some_and(|at| now.saturating_duration_since(at) < alive);
            let keep = recent || known.base.is_some() || exists(node);
            if !keep {
                expired.push(Arc::clone(node));
            }
            keep
        });
        expired
    }

    /// Gives up a node. Returns its base and the version of its Lease to give up.
    pub(super) fn give_up(&mut self, node: &str) -> (Option<Arc<Base>>, Option<u64>) {
        let Some(known) = self.by_node.get_mut(node) else { return (None, None) };
        (known.base.take(), known.election.give_up())
    }

    /// Forgets a base.
    pub(super) fn forget(&mut self, node: &str) {
        self.by_node.remove(node);
    }

    /// Returns the names of all nodes.
    pub(super) fn names(&self) -> Vec<Arc<str>> {
        self.by_node.keys().cloned().collect()
    }
}

/// Returns the tunnel key, and what a base says of itself, from its Node object.
pub(super) fn said_of(node: &Node) -> (String, BaseProfile) {
    let (tunnel, description, marks) = super::describe::from_node(node);
    (tunnel, BaseProfile { description, marks })
}

/// Returns a duration up to a tenth shorter than `interval`, different for each node, so that nodes that were added together
/// do not renew their Leases together.
fn spread(interval: Duration, node: &str) -> Duration {
    interval * (1000 - digest("renewal", node) % 101) / 1000
}

/// Returns a part of [`TIE_BREAK`], different for each replica and node, so that replicas with the same share of the nodes do
/// not all try to take the same one, and none of them takes all.
fn tie_break(replica: &str, node: &str) -> Duration {
    TIE_BREAK * (digest(replica, node) % 1000) / 1000
}

fn digest(one: &str, other: &str) -> u32 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut digest = DefaultHasher::new();
    (one, other).hash(&mut digest);
    u32::try_from(digest.finish() >> 32).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TIMING: LeaseTiming = LeaseTiming {
        duration: Duration::from_secs(40),
        renewal: Duration::from_secs(10),
        retry: Duration::from_secs(2),
    };

    fn known() -> KnownBases {
        KnownBases::new("ours".into(), TIMING, Duration::from_secs(60))
    }

    fn names(id: &str) -> (NodeId, Arc<str>) {
        (id.parse().unwrap(), format!("vnode.{id}.dev").into())
    }

    fn described(status: &str) -> NodeDescription {
        serde_json::from_value(json!({ "metadata": { "name": "shop", "status": status } })).unwrap()
    }

    fn at(seconds: u64) -> BootTime {
        BootTime(Duration::from_secs(seconds))
    }

    /// Lets the replica take and renew all Leases that are free at this time.
    fn take(bases: &mut KnownBases, version: u64, boot: BootTime) -> usize {
        let due = bases.due(|_| None, |_| false, (boot, Instant::now()));
        for (node, _) in &due {
            let seen = SeenLease { version, holder: "ours".into(), deleted: false };
            bases.written(node, &WriteResult::Written(seen), boot);
        }
        due.len()
    }

    #[test]
    fn a_base_that_introduces_itself_is_wanted_until_it_is_silent_or_ends() {
        let (mut bases, now) = (known(), Instant::now());
        let wanted = |bases: &mut KnownBases, now| {
            let boot = at(100);
            let due = bases.due(|_| None, |_| false, (boot, now)).len();
            bases.interrupted(at(0));
            // The delay of this replica has passed.
            let later = boot + MAX_DELAY + TIE_BREAK;
            due.max(bases.due(|_| None, |_| false, (later, now)).len())
        };
        assert!(bases.introduced(names("a"), 0, described("ACTIVATED"), now));
        assert_eq!(wanted(&mut bases, now), 1);
        bases.interrupted(at(0));
        assert_eq!(wanted(&mut bases, now + Duration::from_secs(60)), 0);
        bases.introduced(names("b"), 0, described("ACTIVATED"), now);
        bases.introduced(names("b"), 0, described("DEACTIVATED"), now);
        assert!(bases.introduced(names("c"), 0, described("DEACTIVATED"), now));
        assert!(bases.get("vnode.c.dev").is_none(), "it ends before it was known");
        assert_eq!(bases.expire(|_| false, now + Duration::from_secs(60)).len(), 2);
    }

    #[test]
    fn a_base_of_one_tunnel_cannot_be_changed_through_another_one() {
        let (mut bases, now) = (known(), Instant::now());
        bases.introduced(names("a"), 0, described("ACTIVATED"), now);
        assert!(!bases.introduced(names("a"), 1, described("DEACTIVATED"), now));
        assert!(bases.get("vnode.a.dev").unwrap().introduced.is_some());
    }

    #[test]
    fn a_replica_with_many_nodes_lets_others_take_a_free_one_first() {
        let (mut idle, mut busy, now) = (known(), known(), Instant::now());
        for number in 0..10 {
            busy.introduced(names(&format!("b{number}")), 0, described("ACTIVATED"), now);
        }
        assert_eq!(take(&mut busy, 1, at(100)) + take(&mut busy, 1, at(102)), 10);
        for bases in [&mut idle, &mut busy] {
            bases.introduced(names("free"), 0, described("ACTIVATED"), now);
            assert_eq!(take(bases, 2, at(102)), 0);
        }
        let [first, last] = [TIE_BREAK, TIE_BREAK + MAX_DELAY].map(|delay| at(102) + delay);
        assert_eq!((take(&mut busy, 2, first), take(&mut idle, 2, first)), (0, 1));
        assert_eq!(take(&mut busy, 2, last), 1, "nobody else took it");
    }

    #[test]
    fn a_replica_begins_with_a_lease_and_ends_without_it() {
        let (mut bases, now) = (known(), Instant::now());
        bases.introduced(names("a"), 0, described("ACTIVATED"), now);
        take(&mut bases, 1, at(100));
        take(&mut bases, 1, at(102));
        assert!(matches!(&bases.duties(at(102))[..], [Duty::Begins(node)] if **node == *"vnode.a.dev"));
        assert!(bases.may_act("vnode.a.dev", at(129)) && !bases.may_act("vnode.a.dev", at(132)));
        assert!(!bases.may_act("vnode.other.dev", at(102)));
    }
}
