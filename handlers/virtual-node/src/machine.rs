//! A node, and what is known of the machine behind it.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use staffetta_driver::{Owner, Uid};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::back_end::NodeBackEnd;
use crate::figures::STATES;
use crate::inventory::Inventory;
use crate::node::{KubeletEndpoint, NodeHealth, NodeSpec};
use crate::orphans::Orphans;
use crate::pod::ClusterIndex;
use crate::policy::Policy;
use crate::reach::{Outage, Reach, Turned};
use crate::signals::Voice;
use crate::workload::{Workload, Workloads};

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
    inventory: Inventory,
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

impl Machine {
    pub(crate) fn new(spec: NodeSpec, voice: Arc<Voice>, pods: Arc<ClusterIndex>, policy: Policy) -> Self {
        let (name, retired) = (spec.name.as_str().into(), spec.retired);
        let state = State {
            spec: Arc::new(spec),
            back_end: None,
            reach: Reach::Untried,
            retired,
            kubelet: None,
            object: NodeObject::default(),
            health: None,
            inventory: Inventory::default(),
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
        self.voice.node_due(&self.name);
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
        let ours = state.inventory.workloads().filter(|workload| workload.ours);
        ours.map(|workload| workload.owner.clone()).collect()
    }

    /// What stands for a pod on the machine, as it was read last.
    pub fn workload(&self, uid: &Uid) -> Option<Arc<Workload>> {
        self.state().inventory.get(uid).map(Arc::clone)
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

    /// The node is to be so from now on; the machine stands where it stood.
    pub(crate) fn describe(&self, spec: NodeSpec) {
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

    /// A read was good. Answers whether that ends an outage.
    pub(crate) fn reached(&self) -> bool {
        let turned = self.state().reach.succeeded();
        self.tell(turned);
        turned == Turned::Up
    }

    /// A read failed. Answers whether the machine counts as unreachable from now on, or is so for another reason.
    pub(crate) fn missed(&self, reason: &'static str, message: String, refused: bool) -> bool {
        let turned = self.state().reach.failed(reason, message, refused, &self.policy);
        self.tell(turned);
        matches!(turned, Turned::Down | Turned::Otherwise)
    }

    /// A machine that can be reached or not is news for the node and all its pods; why not, for the node.
    fn tell(&self, turned: Turned) {
        match turned {
            Turned::Nothing => {}
            Turned::Otherwise => self.voice.node_due(&self.name),
            Turned::Found | Turned::Up | Turned::Down => {
                self.voice.node_due(&self.name);
                self.pods_due();
            }
        }
    }

    /// There may be something to do for each of its pods.
    pub(crate) fn pods_due(&self) {
        self.voice.pods_due(&self.pods.owners_on(&self.name), &self.name);
    }

    pub(crate) fn told_health(&self, health: NodeHealth) {
        let mut state = self.state();
        if state.health.as_deref() != Some(&health) {
            state.health = Some(Arc::new(health));
            drop(state);
            self.voice.node_due(&self.name);
        }
    }

    pub(crate) fn told_inventory(&self, workloads: Workloads) {
        self.voice.pods_due(&self.take_in(workloads), &self.name);
    }

    /// Takes in what runs on the machine. Answers whose part of it changed, and what has had no owner for too long.
    fn take_in(&self, workloads: Workloads) -> Vec<Owner> {
        let mut state = self.state();
        let (now, grace) = (Instant::now(), self.policy.orphan_grace);
        let orphans = state.orphans.look(&workloads, |uid| self.pods.knows(uid.as_str()), now, grace);
        let mut due = state.inventory.take_in(workloads);
        due.extend(orphans);
        due
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
