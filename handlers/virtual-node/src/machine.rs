//! A virtual node, the connection to the machine behind it, and the result of the last reads of that machine.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use staffetta_driver::app_hosting::{HostedPod, HostedPods};
use staffetta_driver::{Owner, Uid};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::back_end::NodeBackEnd;
use crate::inventory::Inventory;
use crate::node::{MachineView, NodeHealth, NodeObject, NodeSpec};
use crate::pod::ClusterIndex;
use crate::policy::Policy;
use crate::reach::{Reachability, Transition};
use crate::reports::{ReportVerdict, Reports};
use crate::triggers::Notifier;

/// A virtual node and the last known state of the machine behind it. A change of that state triggers a reconciliation
/// of the node or of its pods.
pub(crate) struct Machine {
    /// The name of the node.
    pub(crate) name: Arc<str>,
    state: Mutex<State>,
    /// Notified when the reader task should read the machine at once, unless it waits after a failed read.
    pub(crate) wake: Notify,
    /// Notified when the parameters of the connection changed, or when a machine that could not be reached has sent a report. The reader
    /// task then reads at once, even if it waits after a failed read.
    pub(crate) retry_now: Notify,
    notifier: Arc<Notifier>,
    pods: Arc<ClusterIndex>,
    policy: Policy,
}

/// The state of a [`Machine`], behind its lock.
struct State {
    view: MachineView,
    /// The open connection to the machine; `None` while there is none.
    back_end: Option<Arc<dyn NodeBackEnd>>,
    inventory: Inventory,
    /// The pods whose status the back end knew at the last read of the workloads.
    expected: HashSet<Uid>,
    /// `true` if the workloads have changed since the machine was last asked for its health.
    health_outdated: bool,
    /// The times of the reports that the machine sent by itself or after a request, and of its heartbeats.
    reports: Reports,
    /// `true` if a report has ended an outage and the Event about that is not published yet.
    reached: bool,
}

impl Machine {
    /// Creates the state of a virtual node whose machine was not read yet.
    pub(crate) fn new(
        spec: NodeSpec,
        notifier: Arc<Notifier>,
        pods: Arc<ClusterIndex>,
        policy: Policy,
    ) -> Self {
        let name = spec.name.as_str().into();
        let (reach, object) = (Reachability::Untried, NodeObject::default());
        let view = MachineView { spec: Arc::new(spec), reach, object, health: None, kubelet: None };
        let (inventory, reports) = (Inventory::default(), Reports::new());
        let (expected, back_end) = (HashSet::new(), None);
        let (health_outdated, reached) = (false, false);
        let state = State { view, back_end, inventory, expected, health_outdated, reports, reached };
        let state = Mutex::new(state);
        Self { name, state, wake: Notify::new(), retry_now: Notify::new(), notifier, pods, policy }
    }

    /// Returns a copy of the current state of the node and its machine.
    pub(crate) fn view(&self) -> MachineView {
        self.state.lock().view.clone()
    }

    /// Returns the open connection to the machine; `None` while there is none.
    pub(crate) fn back_end(&self) -> Option<Arc<dyn NodeBackEnd>> {
        self.state.lock().back_end.clone()
    }

    /// Returns the workload of the pod with this UID; `None` if neither of the last two successful reads of the machine contained it.
    pub(crate) fn workload(&self, uid: &Uid) -> Option<Arc<HostedPod>> {
        self.state.lock().inventory.get(uid).map(Arc::clone)
    }

    /// Returns all workloads on the machine that carry the ownership mark of this cluster.
    pub(crate) fn marked_workloads(&self) -> Vec<Arc<HostedPod>> {
        let state = self.state.lock();
        state.inventory.workloads().filter(|workload| workload.marked).cloned().collect()
    }

    /// Returns `true` if the workload of the pod with this UID carries the ownership mark of this cluster and has had
    /// no pod for the grace period (`Policy::orphan_grace`).
    pub(crate) fn has_orphan(&self, uid: &Uid) -> bool {
        self.state.lock().inventory.has_orphan(uid, Instant::now(), self.policy.orphan_grace)
    }

    /// Records the pods whose status the back end knew at a read of the workloads.
    pub(crate) fn set_expected(&self, pods: &[Arc<Pod>]) {
        let uids = pods.iter().map(|pod| Owner::of(&pod.metadata).uid).collect();
        self.state.lock().expected = uids;
    }

    /// Returns `true` if the back end knew the status of the pod with this UID at the last read of the workloads.
    pub(crate) fn is_expected(&self, uid: &Uid) -> bool {
        self.state.lock().expected.contains(uid)
    }

    /// Makes the reader task read the machine at once, unless it waits after a failed read.
    pub(crate) fn wake_reader(&self) {
        self.wake.notify_one();
    }

    /// Records the address and port at which the API server reaches the node's kubelet API (`None` if they are not
    /// known), and triggers a reconciliation of the node.
    pub(crate) fn set_kubelet_endpoint(&self, endpoint: Option<SocketAddr>) {
        self.state.lock().view.kubelet = endpoint;
        self.notifier.node_due(&self.name);
    }

    /// Records the state of the Node object. When the object becomes owned by this handler, a reconciliation of each of
    /// its pods is triggered.
    pub(crate) fn set_object(&self, object: NodeObject) {
        let ours = object == NodeObject::Ours;
        let before = std::mem::replace(&mut self.state.lock().view.object, object);
        if ours && before != NodeObject::Ours {
            self.pods_due();
        }
    }

    /// Records that the node is being removed from the cluster, which stops all work for its pods.
    pub(crate) fn retire(&self) {
        Arc::make_mut(&mut self.state.lock().view.spec).retired = true;
    }

    /// Stores an opened connection and returns `true`. Returns `false`, and stores nothing, if `session` is not the
    /// current one: the connection parameters changed meanwhile.
    pub(crate) fn set_connection(&self, session: u64, back_end: &Arc<dyn NodeBackEnd>) -> bool {
        let mut state = self.state.lock();
        let current = state.view.spec.session == session;
        if current {
            state.back_end = Some(Arc::clone(back_end));
        }
        current
    }

    /// Drops the connection to the machine. The next read opens a new one.
    pub(crate) fn drop_connection(&self) {
        self.state.lock().back_end = None;
    }

    /// Replaces the specification of the node, whose machine stays the same. A new `session` drops the connection.
    pub(crate) fn update_spec(&self, spec: NodeSpec) {
        let mut state = self.state.lock();
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
        if moved { self.retry_now.notify_one() } else { self.wake_reader() }
    }

    /// Records a successful read. Returns `true` if that read ends an outage.
    pub(crate) fn read_succeeded(&self) -> bool {
        let transition = self.state.lock().view.reach.succeeded();
        self.notify(transition);
        transition == Transition::Up
    }

    /// Records that a report of the machine arrived, unasked or after a request, which shows that the machine can be
    /// reached. `lists` is `true` if the report lists the workloads on the machine.
    pub(crate) fn report_arrived(&self, lists: bool) {
        let transition = {
            let mut state = self.state.lock();
            state.reports.arrived(lists);
            let transition = state.view.reach.succeeded();
            state.reached |= transition == Transition::Up;
            transition
        };
        self.notify(transition);
        if transition == Transition::Up {
            self.retry_now.notify_one();
        }
    }

    /// Returns `true` in the first call after a report has ended an outage.
    pub(crate) fn take_reached(&self) -> bool {
        std::mem::take(&mut self.state.lock().reached)
    }

    /// Returns the result of `of`, which reads or changes the times of the reports and heartbeats of the machine.
    pub(crate) fn reports<T>(&self, of: impl FnOnce(&mut Reports, &Policy) -> T) -> T {
        of(&mut self.state.lock().reports, &self.policy)
    }

    /// Returns the verdict on the machine by the time since its last report or heartbeat: heard from, unreachable or gone.
    pub(crate) fn report_verdict(&self) -> ReportVerdict {
        self.reports(|reports, policy| reports.verdict(policy))
    }

    /// Records an outage: the machine has sent no report for too long. Returns `true` if it becomes unreachable with
    /// that, or was unreachable for another reason before.
    pub(crate) fn fell_silent(&self) -> bool {
        let transition = {
            let mut state = self.state.lock();
            let message = state.reports.outage_message();
            state.view.reach.fell_silent(message)
        };
        self.notify(transition);
        matches!(transition, Transition::Down | Transition::Otherwise)
    }

    /// Records a failed read. Returns `true` if the machine becomes unreachable with that read, or was unreachable for
    /// another reason before. `refused` is `true` if a retry would fail in the same way.
    pub(crate) fn read_failed(&self, reason: &'static str, message: String, refused: bool) -> bool {
        let transition = {
            let mut state = self.state.lock();
            let answered = state.back_end.as_ref().and_then(|back_end| back_end.last_answer());
            let answered = answered.or_else(|| state.reports.last());
            state.view.reach.failed(reason, message, refused, answered, &self.policy)
        };
        self.notify(transition);
        matches!(transition, Transition::Down | Transition::Otherwise)
    }

    /// Triggers reconciliations after a change of the reachability: of the node and all its pods, or of the node only
    /// if merely the reason of an outage changed.
    fn notify(&self, transition: Transition) {
        if transition != Transition::Nothing {
            self.notifier.node_due(&self.name);
        }
        if !matches!(transition, Transition::Nothing | Transition::Otherwise) {
            self.pods_due();
        }
    }

    /// Triggers a reconciliation of each pod on the node.
    pub(crate) fn pods_due(&self) {
        self.notifier.pods_due(&self.pods.owners_on(&self.name), &self.name);
    }

    /// Records the health that a read returned or the machine reported. A change triggers a reconciliation of the node.
    pub(crate) fn reported_health(&self, health: NodeHealth) {
        let mut state = self.state.lock();
        if state.view.health.as_deref() != Some(&health) {
            state.view.health = Some(Arc::new(health));
            drop(state);
            self.notifier.node_due(&self.name);
        }
    }

    /// Returns `true` if the health can be read less often: it is known, heartbeats show that the machine runs, and the workloads have
    /// not changed since the machine was last asked for its health.
    pub(crate) fn has_current_health(&self) -> bool {
        let state = self.state.lock();
        let beats = state.reports.heartbeat_until(&self.policy).is_some_and(|until| until > Instant::now());
        beats && state.view.health.is_some() && !state.health_outdated
    }

    /// Records that the machine is about to be asked for its health.
    pub(crate) fn asking_health(&self) {
        self.state.lock().health_outdated = false;
    }

    /// Records the workloads on the machine. Triggers a reconciliation of the pod of each workload that is new, changed or gone, and of
    /// the former pod of each workload of this cluster that has had no pod for `Policy::orphan_grace`.
    pub(crate) fn reported_inventory(&self, workloads: &HostedPods) {
        let has_owner = |uid: &Uid| self.pods.knows(uid.as_str());
        let (now, grace) = (Instant::now(), self.policy.orphan_grace);
        let mut state = self.state.lock();
        let due = state.inventory.record_read(workloads, has_owner, now, grace);
        state.health_outdated |= !due.is_empty();
        drop(state);
        self.notifier.pods_due(&due, &self.name);
    }
}
