//! A node, the connection to the machine behind it and what was read there.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use staffetta_driver::app_hosting::{HostedPod, HostedPods};
use staffetta_driver::{Owner, Uid};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::back_end::NodeBackEnd;
use crate::inventory::Inventory;
use crate::lock::lock;
use crate::node::{MachineView, NodeHealth, NodeObject, NodeSpec};
use crate::pod::ClusterIndex;
use crate::policy::Policy;
use crate::reach::{Reachability, Transition};
use crate::triggers::Notifier;

/// A node and what was read of the machine behind it. What changes causes triggers for the node and its pods.
pub(crate) struct Machine {
    /// The name of the node.
    pub(crate) name: Arc<str>,
    state: Mutex<State>,
    /// Notified when the machine is to be read at once.
    pub(crate) wake: Notify,
    /// Notified when the machine has a new connection that was not tried yet.
    pub(crate) reconnect: Notify,
    notifier: Arc<Notifier>,
    pods: Arc<ClusterIndex>,
    policy: Policy,
}

struct State {
    view: MachineView,
    back_end: Option<Arc<dyn NodeBackEnd>>,
    inventory: Inventory,
}

impl Machine {
    pub(crate) fn new(
        spec: NodeSpec,
        notifier: Arc<Notifier>,
        pods: Arc<ClusterIndex>,
        policy: Policy,
    ) -> Self {
        let name = spec.name.as_str().into();
        let (reach, object) = (Reachability::Untried, NodeObject::default());
        let view = MachineView { spec: Arc::new(spec), reach, object, health: None, kubelet: None };
        let state = Mutex::new(State { view, back_end: None, inventory: Inventory::default() });
        Self { name, state, wake: Notify::new(), reconnect: Notify::new(), notifier, pods, policy }
    }

    /// The current state of the node and its machine.
    pub(crate) fn view(&self) -> MachineView {
        lock(&self.state).view.clone()
    }

    /// The open connection to the machine, if any.
    pub(crate) fn back_end(&self) -> Option<Arc<dyn NodeBackEnd>> {
        lock(&self.state).back_end.clone()
    }

    /// The workload of a pod, as of the last read.
    pub(crate) fn workload(&self, uid: &Uid) -> Option<Arc<HostedPod>> {
        lock(&self.state).inventory.get(uid).map(Arc::clone)
    }

    /// The owners of workloads that carry our mark.
    pub(crate) fn ours(&self) -> Vec<Owner> {
        let state = lock(&self.state);
        let ours = state.inventory.workloads().filter(|workload| workload.marked);
        ours.map(|workload| workload.owner.clone()).collect()
    }

    /// Returns `true` if the owner's workload carries our mark and has had no pod for the grace period.
    pub(crate) fn has_orphan(&self, uid: &Uid) -> bool {
        lock(&self.state).inventory.has_orphan(uid, Instant::now(), self.policy.orphan_grace)
    }

    /// Makes the reader read the machine at once.
    pub(crate) fn wake_reader(&self) {
        self.wake.notify_one();
    }

    /// Records the endpoint at which this process serves the node's kubelet API.
    pub(crate) fn set_kubelet_endpoint(&self, endpoint: Option<SocketAddr>) {
        lock(&self.state).view.kubelet = endpoint;
        self.notifier.node_due(&self.name);
    }

    /// Records the state of the Node object. When it becomes ours, all its pods are due.
    pub(crate) fn has_object(&self, object: NodeObject) {
        let ours = object == NodeObject::Ours;
        let before = std::mem::replace(&mut lock(&self.state).view.object, object);
        if ours && before != NodeObject::Ours {
            self.pods_due();
        }
    }

    /// Records that the node is being removed from the cluster, or was taken over by another description.
    pub(crate) fn retire(&self, retired: bool) {
        Arc::make_mut(&mut lock(&self.state).view.spec).retired = retired;
    }

    /// Stores an opened connection, and returns `true`, unless it belongs to another `session` than the current one.
    pub(crate) fn set_connection(&self, session: u64, back_end: &Arc<dyn NodeBackEnd>) -> bool {
        let mut state = lock(&self.state);
        let current = state.view.spec.session == session;
        if current {
            state.back_end = Some(Arc::clone(back_end));
        }
        current
    }

    /// Drops the connection, so that it is opened again.
    pub(crate) fn drop_connection(&self) {
        lock(&self.state).back_end = None;
    }

    /// Replaces the specification of the node; its machine is the same.
    pub(crate) fn describe(&self, spec: NodeSpec) {
        let mut state = lock(&self.state);
        if *state.view.spec == spec {
            return;
        }
        let moved = state.view.spec.session != spec.session;
        if moved {
            state.back_end = None;
        }
        state.view.spec = Arc::new(spec);
        drop(state);
        // One of both, so that the reader reads once.
        if moved { self.reconnect.notify_one() } else { self.wake_reader() }
    }

    /// Records a read that succeeded. Returns `true` if that ends an outage.
    pub(crate) fn read_succeeded(&self) -> bool {
        let transition = lock(&self.state).view.reach.succeeded();
        self.notify(transition);
        transition == Transition::Up
    }

    /// Records a read that failed. Returns `true` if the machine is unreachable from now on, or so for another reason.
    pub(crate) fn read_failed(&self, reason: &'static str, message: String, refused: bool) -> bool {
        let transition = lock(&self.state).view.reach.failed(reason, message, refused, &self.policy);
        self.notify(transition);
        matches!(transition, Transition::Down | Transition::Otherwise)
    }

    /// A change of the reachability concerns the node and all its pods; another reason of an outage, the node only.
    fn notify(&self, transition: Transition) {
        if transition != Transition::Nothing {
            self.notifier.node_due(&self.name);
        }
        if !matches!(transition, Transition::Nothing | Transition::Otherwise) {
            self.pods_due();
        }
    }

    /// Triggers a reconciliation of each of its pods.
    pub(crate) fn pods_due(&self) {
        self.notifier.pods_due(&self.pods.owners_on(&self.name), &self.name);
    }

    /// Records the health of the machine.
    pub(crate) fn reported_health(&self, health: NodeHealth) {
        let mut state = lock(&self.state);
        if state.view.health.as_deref() != Some(&health) {
            state.view.health = Some(Arc::new(health));
            drop(state);
            self.notifier.node_due(&self.name);
        }
    }

    /// Records the workloads of the machine. The owners of changed workloads and of orphans are due.
    pub(crate) fn reported_inventory(&self, workloads: &HostedPods) {
        let has_owner = |uid: &Uid| self.pods.knows(uid.as_str());
        let (now, grace) = (Instant::now(), self.policy.orphan_grace);
        let due = lock(&self.state).inventory.record_read(workloads, has_owner, now, grace);
        self.notifier.pods_due(&due, &self.name);
    }
}
