//! The bases that this process knows, and those that it looks after.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use staffetta_driver::tunnel::{NodeActivation, NodeDescription, NodeId};
use staffetta_handler::BootTime;
use tokio::time::Instant;

use super::base::{Base, BaseProfile};
use super::lease::{LeaseElection, LeaseTiming, LeaseWrite, SeenLease, VersionHistory, WriteResult};
use super::replicas::Replicas;
use super::share::{ELECTION_INTERVAL, FairShare, spread, tie_break};
use crate::node::NodeMarks;

/// A base that this process knows, from its own reports or from its Node object.
pub(super) struct KnownBase {
    pub(super) id: NodeId,
    /// The index of the base's tunnel in the list of configured tunnels; `None` if that tunnel is not configured.
    pub(super) tunnel: Option<usize>,
    /// The name of the node of the base.
    pub(super) node: Arc<str>,
    /// The part of this process in the election of the holder of the node's Lease.
    pub(super) election: LeaseElection,
    /// The description and the marks (labels, annotations, taints) that the base reported last.
    pub(super) profile: BaseProfile,
    /// The time at which the base last introduced itself to this process; `None` if it has not, or has announced that it ends.
    pub(super) introduced: Option<Instant>,
    /// `true` if the base has or is to have a node.
    wanted: bool,
    /// The base, while this process looks after it; `None` at any other time.
    pub(super) base: Option<Arc<Base>>,
}

impl KnownBase {
    /// Returns `true` if the base introduced itself less than `alive` ago.
    fn is_alive(&self, alive: Duration, now: Instant) -> bool {
        self.introduced.is_some_and(|at| now.saturating_duration_since(at) < alive)
    }

    /// Returns `true` if this process looks after the base, and the base has not answered yet. It has no node that could move.
    fn is_awaited(&self) -> bool {
        self.base.as_ref().is_some_and(|base| base.is_awaited())
    }

    /// Returns `true` while a write that takes the Lease is in progress.
    fn is_being_taken(&self) -> bool {
        self.election.is_writing() && self.election.until().is_none()
    }
}

/// The bases that this process knows, by the name of their node.
pub(super) struct KnownBases {
    replica: String,
    timing: LeaseTiming,
    /// The time after its introduction during which a base without a Node object is to get one. Also an extra delay before this process
    /// takes the Lease of a base whose tunnel it does not have: a replica with the tunnel takes it first.
    alive: Duration,
    by_node: HashMap<Arc<str>, KnownBase>,
    /// The versions of the Leases that this process has written.
    versions: VersionHistory,
    /// The Leases that show which replicas without a known node are alive: their own Leases, and those of nodes that this process does not
    /// know.
    pub(super) replicas: Replicas,
    /// The earliest time at which a further node is given up to another replica.
    next_move: BootTime,
}

/// A Lease that this process has taken or lost, so that it begins or stops to look after the base of the node.
pub(super) enum HeldChange {
    /// This process holds the Lease of the node from now on.
    Begins(Arc<str>),
    /// This process does not hold the Lease of the node any more.
    Ends(Arc<str>, Arc<Base>),
}

impl KnownBases {
    pub(super) fn new(replica: String, timing: LeaseTiming, alive: Duration) -> Self {
        let (replicas, next_move) = (Replicas::new(&replica, timing), BootTime::default());
        let (by_node, versions) = (HashMap::new(), VersionHistory::default());
        Self { replica, timing, alive, by_node, versions, replicas, next_move }
    }

    /// Returns the base of a node; `None` if this process knows none.
    pub(super) fn get(&self, node: &str) -> Option<&KnownBase> {
        self.by_node.get(node)
    }

    /// Returns the base of a node, to change it; `None` if this process knows none.
    pub(super) fn get_mut(&mut self, node: &str) -> Option<&mut KnownBase> {
        self.by_node.get_mut(node)
    }

    /// Returns the base of a node while this process looks after it; `None` at any other time.
    pub(super) fn held(&self, node: &str) -> Option<&Arc<Base>> {
        self.by_node.get(node)?.base.as_ref()
    }

    /// Returns all bases that this process looks after.
    pub(super) fn all_held(&self) -> impl Iterator<Item = &Arc<Base>> {
        self.by_node.values().filter_map(|known| known.base.as_ref())
    }

    /// Returns the nodes to give up: this process looks after their bases, but the nodes do not exist and are not about to be created.
    pub(super) fn ended(&self, exists: impl Fn(&str) -> bool, now: Instant) -> Vec<Arc<str>> {
        let is_coming = |known: &KnownBase, base: &Base| base.is_awaited() && known.is_alive(self.alive, now);
        let ended = |known: &&KnownBase| {
            known.base.as_ref().is_some_and(|base| !exists(&known.node) && !is_coming(known, base))
        };
        self.by_node.values().filter(ended).map(|known| Arc::clone(&known.node)).collect()
    }

    /// Returns `true` while this process may act for the node, as the holder of its Lease.
    pub(super) fn may_act(&self, node: &str, now: BootTime) -> bool {
        self.by_node.get(node).is_some_and(|known| known.election.may_act(now))
    }

    /// Adds a base, unless it is known.
    pub(super) fn add(
        &mut self,
        (id, node): (NodeId, Arc<str>),
        tunnel: Option<usize>,
        profile: BaseProfile,
    ) {
        let timing = LeaseTiming { renewal: spread(self.timing.renewal, &node), ..self.timing };
        let election = LeaseElection::new(&self.replica, timing);
        self.by_node.entry(Arc::clone(&node)).or_insert_with(|| KnownBase {
            id,
            tunnel,
            node,
            election,
            profile,
            introduced: None,
            wanted: false,
            base: None,
        });
    }

    /// Records that a base introduced itself by a tunnel, or said that it ends. Returns `false` if the base belongs to another
    /// tunnel.
    pub(super) fn introduced(
        &mut self,
        (id, node): (NodeId, Arc<str>),
        tunnel: usize,
        description: &NodeDescription,
        now: Instant,
    ) -> bool {
        let ends = description.metadata.status == NodeActivation::Deactivated;
        if !self.by_node.contains_key(&node) {
            if ends {
                return true;
            }
            let profile = BaseProfile { description: description.clone(), marks: NodeMarks::default() };
            self.add((id, Arc::clone(&node)), Some(tunnel), profile);
        }
        let Some(known) = self.by_node.get_mut(&node) else { return false };
        if known.tunnel.is_none() && known.base.is_none() {
            // Its former tunnel is not configured any more.
            known.tunnel = Some(tunnel);
        }
        if known.tunnel != Some(tunnel) {
            return false;
        }
        known.introduced = (!ends).then_some(now);
        if !ends && known.profile.description != *description {
            known.profile.description = description.clone();
        }
        true
    }

    /// Returns the writes to Leases that are due, after recording the newest state of each Lease. `lease` returns that state, and `exists`
    /// whether the Node object of a base exists. While this process has no node and is `ready` for one (all its tunnels run and are
    /// connected), it renews a Lease of its own.
    pub(super) fn due(
        &mut self,
        lease: impl Fn(&str) -> Option<SeenLease>,
        exists: impl Fn(&str) -> bool,
        ready: bool,
        (boot, now): (BootTime, Instant),
    ) -> Vec<(Arc<str>, LeaseWrite)> {
        for (node, known) in &mut self.by_node {
            if let Some(seen) = lease(node) {
                known.election.observe(&seen, boot);
            }
            known.wanted = known.is_alive(self.alive, now) || exists(node);
        }
        let share = self.share(|_| true, boot);
        let held = self.count();
        let history = self.versions.before(self.timing.duration, boot);
        let mut due = Vec::new();
        if held == 0 && ready {
            due.extend(self.replicas.next(boot));
        }
        let taking = self.by_node.values().filter(|known| known.is_being_taken()).count();
        let mut coming = held + taking;
        for (node, known) in &mut self.by_node {
            let delay = if known.election.may_act(boot) {
                Duration::ZERO
            } else {
                let later = if known.tunnel.is_none() { self.alive } else { Duration::ZERO };
                share.delay(coming) + tie_break(&self.replica, node) + later
            };
            if let Some(write) = known.election.next(known.wanted, delay, history, boot) {
                known.election.begin(boot);
                coming += usize::from(known.is_being_taken());
                due.push((Arc::clone(node), write));
            }
        }
        due
    }

    /// Gives up nodes that exceed the share of this process, so that other replicas take them: at most a part of a share at a
    /// time, and only nodes that are `movable` and whose base is not starting or stopping a container. Returns their bases,
    /// and the writes to their Leases.
    pub(super) fn surplus(
        &mut self,
        movable: impl Fn(&str) -> bool,
        now: BootTime,
    ) -> Vec<(Arc<Base>, LeaseWrite)> {
        // Anybody may report bases, and nodes of others are not to move for those that do not answer.
        let counts = |known: &KnownBase| !known.is_awaited();
        let share = self.share(counts, now);
        // The share is one of the wanted nodes. One that ends is given up anyway.
        let held = |known: &&KnownBase| known.wanted && counts(known) && known.election.until().is_some();
        let surplus = share.surplus(self.by_node.values().filter(held).count());
        if surplus == 0 {
            return Vec::new();
        }
        let most = share.moved_in_a_period();
        let is_free = |known: &&KnownBase| known.wanted && known.election.holder(now).is_none();
        let free = self.by_node.values().filter(is_free).count();
        let surplus = surplus.min(most.saturating_sub(free));
        let pace = self.timing.renewal / u32::try_from(most).unwrap_or(u32::MAX);
        let mut moved = Vec::new();
        for known in self.by_node.values_mut() {
            if moved.len() == surplus || self.next_move > now + ELECTION_INTERVAL {
                break;
            }
            let idle = |base: &&Arc<Base>| movable(&base.node) && base.containers.lock().close();
            let may_move = known.wanted && known.election.may_act(now) && !known.election.is_writing();
            if may_move && known.base.as_ref().is_some_and(|base| idle(&base)) {
                // Without a write, the hold has ended, and `held_changes` returns the base.
                if let Some(write) = known.election.hand_over(now) {
                    moved.extend(known.base.take().map(|base| (base, write)));
                }
                self.next_move = self.next_move.max(now) + pace;
            }
        }
        moved
    }

    /// Returns the number of nodes whose Lease this process holds.
    fn count(&self) -> usize {
        self.by_node.values().filter(|known| known.election.until().is_some()).count()
    }

    /// Returns the number of nodes that each replica that is alive is to hold, of the wanted nodes for which `counts` is true.
    fn share(&self, counts: impl Fn(&KnownBase) -> bool, now: BootTime) -> FairShare {
        let others = self.by_node.values().filter(|known| known.election.until().is_none());
        let holders = others.filter_map(|known| known.election.holder(now));
        let replicas: HashSet<_> =
            holders.chain(self.replicas.alive(now)).chain([self.replica.as_str()]).collect();
        let nodes = self.by_node.values().filter(|known| known.wanted && counts(known)).count();
        FairShare::new(nodes, replicas.len())
    }

    /// Records the result of a write to the Lease of a node, or to that of this replica.
    pub(super) fn written(&mut self, name: &str, result: &WriteResult, now: BootTime) {
        if let WriteResult::Written(seen) | WriteResult::First(seen) = result {
            self.versions.record(seen.version, now);
        }
        if self.replicas.written(name, result, now) {
            return;
        }
        if let Some(known) = self.by_node.get_mut(name) {
            known.election.finish(result, now);
        }
    }

    /// Records that the results of all writes to Leases in progress will not be known, because their requests were dropped.
    pub(super) fn interrupted(&mut self, now: BootTime) {
        self.by_node.values_mut().for_each(|known| known.election.finish(&WriteResult::Failed, now));
        self.replicas.interrupted(now);
    }

    /// Returns the nodes whose Lease this process has taken or lost since the last call. This process no longer looks after the bases whose
    /// Lease was lost.
    pub(super) fn held_changes(&mut self, now: BootTime) -> Vec<HeldChange> {
        let mut held_changes = Vec::new();
        for (node, known) in &mut self.by_node {
            let acts = known.election.may_act(now);
            match (&known.base, acts) {
                (None, true) => held_changes.push(HeldChange::Begins(Arc::clone(node))),
                (Some(_), false) => {
                    held_changes
                        .extend(known.base.take().map(|base| HeldChange::Ends(Arc::clone(node), base)));
                }
                _ => {}
            }
        }
        held_changes
    }

    /// Forgets bases that this process does not look after, that have no Node object (`exists` returns `false` for the node), and that have
    /// not introduced themselves within the time `alive`.
    pub(super) fn expire(&mut self, exists: impl Fn(&str) -> bool, now: Instant) {
        let alive = self.alive;
        self.by_node.retain(|node, known| {
            let held = known.base.is_some() || known.election.until().is_some();
            known.is_alive(alive, now) || held || exists(node)
        });
    }

    /// Ends the hold of a node's Lease in this process. Returns the base, which the caller abandons (`None` if this process did not look
    /// after it), and the Lease, which the caller writes as given up (`None` if it was not held, or is deleted).
    pub(super) fn give_up(&mut self, node: &str) -> (Option<Arc<Base>>, Option<SeenLease>) {
        let Some(known) = self.by_node.get_mut(node) else { return (None, None) };
        (known.base.take(), known.election.give_up())
    }

    /// Removes the base of this node from the known bases.
    pub(super) fn forget(&mut self, node: &str) {
        self.by_node.remove(node);
    }

    /// Returns the names of the nodes of all known bases.
    pub(super) fn names(&self) -> Vec<Arc<str>> {
        self.by_node.keys().cloned().collect()
    }
}

#[cfg(test)]
pub(super) mod tests;
