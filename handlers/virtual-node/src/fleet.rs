//! The nodes that exist, and what was read of the machine behind each.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dashmap::DashMap;
use staffetta_driver::{Owner, Uid};
use staffetta_handler::Outlet;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::back_end::NodeBackEnd;
use crate::figures::STATES;
use crate::node::{KubeletEndpoint, NodeHealth, NodeSpec};
use crate::orphans::Orphans;
use crate::pod::ClusterIndex;
use crate::policy::Policy;
use crate::reach::{Outage, Reach, Turned};
use crate::signals::{NodeDue, PodDue};
use crate::workload::{Workload, Workloads};

/// How many good reads in a row must not have a pod that was there before it counts as gone.
const ABSENCES: u8 = 2;

/// The nodes that exist. It is told by a [`NodeSource`](crate::NodeSource) and by the readers of the machines, and tells the
/// chain what changed.
pub struct Fleet {
    machines: DashMap<String, Arc<Machine>>,
    complete: AtomicBool,
    /// Nodes that were there and went while this process lives.
    departed: DashMap<String, ()>,
    /// Nodes that exist and of which nobody can say how they are to be.
    unread: Mutex<HashSet<String>>,
    /// Rings when a node comes or goes.
    pub(crate) turnover: Notify,
    voice: Arc<Voice>,
    pods: Arc<ClusterIndex>,
    policy: Policy,
}

/// Where changes are told, once somebody listens.
#[derive(Default)]
pub(crate) struct Voice(Mutex<Option<Outlet>>);

impl Voice {
    fn outlet(&self) -> Option<Outlet> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A node and what was read of the machine behind it.
pub struct Machine {
    name: Arc<str>,
    state: Mutex<State>,
    /// Rings when the machine is to be read at once.
    pub(crate) poked: Notify,
    /// Rings when there is another way to the machine, which nobody has tried yet.
    pub(crate) moved: Notify,
    voice: Arc<Voice>,
    pods: Arc<ClusterIndex>,
    policy: Policy,
}

struct State {
    spec: Arc<NodeSpec>,
    back_end: Option<Arc<dyn NodeBackEnd>>,
    reach: Reach,
    /// Whether it is being taken out of the cluster: nothing is done for its pods any more.
    retired: bool,
    /// Where its kubelet API is answered by this process.
    kubelet: Option<KubeletEndpoint>,
    object: NodeObject,
    health: Option<Arc<NodeHealth>>,
    /// The last answer, to recognise the same one.
    answer: Option<Workloads>,
    seen: HashMap<Uid, Seen>,
    orphans: Orphans,
}

/// How it stands with the Node object of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum NodeObject {
    /// It is about to be made, or nobody has looked yet.
    #[default]
    Coming,
    /// It is there, and ours.
    Ours,
    /// There is none that is ours.
    Missing {
        /// Why, in one word of CamelCase.
        reason: &'static str,
        /// Why, for people.
        message: String,
    },
}

struct Seen {
    workload: Arc<Workload>,
    absences: u8,
}

impl Fleet {
    pub(crate) fn new(pods: Arc<ClusterIndex>, policy: Policy) -> Self {
        let (voice, turnover) = (Arc::default(), Notify::new());
        let (machines, departed, complete) = (DashMap::new(), DashMap::new(), AtomicBool::new(false));
        Self { machines, complete, departed, unread: Mutex::default(), turnover, voice, pods, policy }
    }

    /// The node of that name.
    pub fn get(&self, name: &str) -> Option<Arc<Machine>> {
        self.machines.get(name).map(|machine| Arc::clone(&machine))
    }

    /// All nodes.
    pub fn all(&self) -> Vec<Arc<Machine>> {
        self.machines.iter().map(|machine| Arc::clone(&machine)).collect()
    }

    /// Whether all nodes that exist at the start are known.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete.load(Ordering::SeqCst)
    }

    /// Whether the node was there and went while this process lives: nobody need be waited for.
    pub(crate) fn has_departed(&self, name: &str) -> bool {
        self.departed.contains_key(name)
    }

    /// Whether the node exists, and nobody can say how it is to be.
    pub(crate) fn is_unread(&self, name: &str) -> bool {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner).contains(name)
    }

    pub(crate) fn leave_unread(&self, names: Vec<String>) {
        let names = names.into_iter().collect();
        let mut unread = self.unread.lock().unwrap_or_else(PoisonError::into_inner);
        if *unread != names {
            *unread = names;
            drop(unread);
            self.turnover.notify_one();
        }
    }

    /// Nothing is left of a node that went.
    pub(crate) fn forget(&self, name: &str) {
        self.departed.remove(name);
    }

    /// Tells what changed to `outlet` from now on.
    pub(crate) fn speaks_to(&self, outlet: &Outlet) {
        *self.voice.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(outlet.clone());
    }

    /// Says that there is something to do for a node.
    pub(crate) fn node_due(&self, name: &str) {
        if let Some(outlet) = self.voice.outlet() {
            outlet.signal(NodeDue::new(name));
        }
    }

    pub(crate) fn insert(&self, spec: NodeSpec) {
        let name = spec.name.clone();
        self.departed.remove(&name);
        if let Some(machine) = self.get(&name).filter(|machine| machine.spec().place == spec.place) {
            machine.describe(spec);
        } else {
            let machine =
                Machine::new(spec, Arc::clone(&self.voice), Arc::clone(&self.pods), self.policy.clone());
            self.machines.insert(name.clone(), Arc::new(machine));
            self.turnover.notify_one();
        }
        self.node_due(&name);
    }

    pub(crate) fn remove(&self, name: &str) {
        if self.machines.remove(name).is_some() {
            self.departed.insert(name.to_owned(), ());
            self.turnover.notify_one();
            self.node_due(name);
        }
    }

    /// Ends when all nodes that exist at the start are known.
    pub(crate) async fn completed(&self) {
        while !self.is_complete() {
            self.turnover.notified().await;
        }
    }

    pub(crate) fn complete(&self) {
        self.complete.store(true, Ordering::SeqCst);
        self.turnover.notify_one();
    }
}

impl Machine {
    fn new(spec: NodeSpec, voice: Arc<Voice>, pods: Arc<ClusterIndex>, policy: Policy) -> Self {
        let (name, retired) = (spec.name.as_str().into(), spec.retired);
        let state = State {
            spec: Arc::new(spec),
            back_end: None,
            reach: Reach::Untried,
            retired,
            kubelet: None,
            object: NodeObject::default(),
            health: None,
            answer: None,
            seen: HashMap::new(),
            orphans: Orphans::default(),
        };
        let (state, poked, moved) = (Mutex::new(state), Notify::new(), Notify::new());
        Self { name, state, poked, moved, voice, pods, policy }
    }

    /// The name of the node.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// What the node is to be.
    pub fn spec(&self) -> Arc<NodeSpec> {
        Arc::clone(&self.state().spec)
    }

    /// Where the kubelet API of the node is answered.
    pub(crate) fn kubelet(&self) -> Option<KubeletEndpoint> {
        let state = self.state();
        state.kubelet.or(state.spec.kubelet)
    }

    /// The kubelet API of the node is answered there from now on.
    pub(crate) fn answers_at(&self, endpoint: Option<KubeletEndpoint>) {
        self.state().kubelet = endpoint;
        if let Some(outlet) = self.voice.outlet() {
            outlet.signal(NodeDue::new(&self.name));
        }
    }

    /// The machine's own address, as far as it is known.
    pub(crate) fn host_ip(&self) -> Option<IpAddr> {
        let state = self.state();
        state.spec.host_ip.or_else(|| state.health.as_ref()?.host_ip)
    }

    /// How it stands with its Node object.
    pub(crate) fn object(&self) -> NodeObject {
        self.state().object.clone()
    }

    /// It stands so with its Node object from now on. When that becomes ours, there may be something to do for all its pods.
    pub(crate) fn has_object(&self, object: NodeObject) {
        let ours = object == NodeObject::Ours;
        let before = std::mem::replace(&mut self.state().object, object);
        if ours && before != NodeObject::Ours {
            self.pods_due();
        }
    }

    /// The machine is read at once.
    pub fn poke(&self) {
        self.poked.notify_one();
    }

    /// The way to the machine, while one is open.
    pub fn back_end(&self) -> Option<Arc<dyn NodeBackEnd>> {
        self.state().back_end.clone()
    }

    /// What the machine is and has, once it was read.
    pub(crate) fn health(&self) -> Option<Arc<NodeHealth>> {
        self.state().health.clone()
    }

    /// Why the machine cannot be reached; none while it can, or nobody has tried.
    pub(crate) fn outage(&self) -> Option<Outage> {
        match &self.state().reach {
            Reach::Down(outage) => Some(outage.clone()),
            Reach::Untried | Reach::Up { .. } => None,
        }
    }

    /// How the machine is, in one word of a closed set.
    pub(crate) fn condition(&self) -> &'static str {
        let [ready, troubled, untried, unreachable] = STATES;
        let state = self.state();
        match &state.reach {
            Reach::Down(_) => unreachable,
            Reach::Untried => untried,
            Reach::Up { .. } if state.health.as_ref().is_some_and(|health| health.trouble.is_some()) => {
                troubled
            }
            Reach::Up { .. } => ready,
        }
    }

    /// Whether the machine can be reached.
    pub(crate) fn is_up(&self) -> bool {
        self.state().reach.is_up()
    }

    /// Whether the last read of the machine was good.
    pub(crate) fn answers(&self) -> bool {
        self.state().reach.answers()
    }

    /// Whether the machine may be asked to do something for its pods.
    pub(crate) fn works(&self) -> bool {
        let state = self.state();
        state.reach.is_up() && !state.retired && state.object == NodeObject::Ours
    }

    /// The machine is being taken out of the cluster, or has been taken over by another description.
    pub(crate) fn retire(&self, retired: bool) {
        self.state().retired = retired;
    }

    /// Whether what runs there of an owner carries our mark and has long had no pod.
    pub(crate) fn has_orphan(&self, uid: &Uid) -> bool {
        self.state().orphans.holds(uid, Instant::now(), self.policy.orphan_grace)
    }

    /// Whose is what runs there of ours.
    pub(crate) fn ours(&self) -> Vec<Owner> {
        let state = self.state();
        let ours = state.seen.values().filter(|seen| seen.workload.ours);
        ours.map(|seen| seen.workload.owner.clone()).collect()
    }

    /// What stands for a pod on the machine, as it was read last.
    pub fn workload(&self, uid: &Uid) -> Option<Arc<Workload>> {
        self.state().seen.get(uid).map(|seen| Arc::clone(&seen.workload))
    }

    /// A way to the machine is open. It is not taken if the one of this `session` is not the way any more; answers whether it was.
    pub(crate) fn opened(&self, session: u64, back_end: &Arc<dyn NodeBackEnd>) -> bool {
        let mut state = self.state();
        let current = state.spec.session == session;
        if current {
            state.back_end = Some(Arc::clone(back_end));
        }
        current
    }

    /// The way to the machine is to be opened anew.
    pub(crate) fn closed(&self) {
        self.state().back_end = None;
    }

    fn describe(&self, spec: NodeSpec) {
        let mut state = self.state();
        if *state.spec == spec {
            return;
        }
        let moved = state.spec.session != spec.session;
        if moved {
            state.back_end = None;
        }
        state.retired = spec.retired;
        state.spec = Arc::new(spec);
        drop(state);
        // One of both: whoever waits is to read once.
        if moved { self.moved.notify_one() } else { self.poke() }
    }

    /// A read was good. Answers whether the machine was not reached before.
    pub(crate) fn reached(&self) -> bool {
        let turned = self.state().reach.succeeded();
        self.tell(turned);
        turned == Turned::Up
    }

    /// A read failed. Answers whether the machine counts as unreachable from now on.
    pub(crate) fn missed(&self, reason: &'static str, message: String, refused: bool) -> bool {
        let turned = self.state().reach.failed(reason, message, refused, &self.policy);
        self.tell(turned);
        turned == Turned::Down
    }

    /// Whether a machine that can be reached or not is news for the node and all its pods.
    fn tell(&self, turned: Turned) {
        if turned == Turned::Nothing {
            return;
        }
        if let Some(outlet) = self.voice.outlet() {
            outlet.signal(NodeDue::new(&self.name));
        }
        self.pods_due();
    }

    /// There may be something to do for each of its pods.
    fn pods_due(&self) {
        let Some(outlet) = self.voice.outlet() else { return };
        for owner in self.pods.owners_on(&self.name) {
            outlet.signal(PodDue::new(&owner, &self.name));
        }
    }

    pub(crate) fn told_health(&self, health: NodeHealth) {
        let mut state = self.state();
        if state.health.as_deref() != Some(&health) {
            state.health = Some(Arc::new(health));
            drop(state);
            if let Some(outlet) = self.voice.outlet() {
                outlet.signal(NodeDue::new(&self.name));
            }
        }
    }

    pub(crate) fn told_inventory(&self, workloads: Workloads) {
        let due = self.take_in(workloads);
        if due.is_empty() {
            return;
        }
        let Some(outlet) = self.voice.outlet() else { return };
        for owner in &due {
            outlet.signal(PodDue::new(owner, &self.name));
        }
    }

    /// Takes in what runs on the machine. Answers whose part of it changed, and what has had no owner for too long.
    fn take_in(&self, workloads: Workloads) -> Vec<Owner> {
        let mut state = self.state();
        let State { answer, seen, orphans, .. } = &mut *state;
        let same = answer.as_ref().is_some_and(|before| Arc::ptr_eq(before, &workloads));
        let mut due = Vec::new();
        if !same || seen.len() != workloads.len() {
            changes(seen, &workloads, &mut due);
        }
        let grace = self.policy.orphan_grace;
        due.extend(orphans.look(&workloads, |uid| self.pods.knows(uid.as_str()), Instant::now(), grace));
        *answer = Some(workloads);
        due
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Brings `seen` up to date, and adds whose part changed.
fn changes(seen: &mut HashMap<Uid, Seen>, workloads: &Workloads, due: &mut Vec<Owner>) {
    for seen in seen.values_mut() {
        seen.absences = seen.absences.saturating_add(1);
    }
    for workload in workloads.iter() {
        match seen.entry(workload.owner.uid.clone()) {
            Entry::Occupied(mut entry) => {
                let seen = entry.get_mut();
                seen.absences = 0;
                if seen.workload != *workload {
                    due.push(workload.owner.clone());
                }
                seen.workload = Arc::clone(workload);
            }
            Entry::Vacant(vacant) => {
                due.push(workload.owner.clone());
                vacant.insert(Seen { workload: Arc::clone(workload), absences: 0 });
            }
        }
    }
    seen.retain(|_, seen| {
        let gone = seen.absences >= ABSENCES;
        if gone {
            due.push(seen.workload.owner.clone());
        }
        !gone
    });
}

#[cfg(test)]
mod tests;
