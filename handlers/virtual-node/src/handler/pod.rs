//! Reconciles a pod of a virtual node: takes one step towards its desired state, and writes its status.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;
use staffetta_driver::virtual_node::{PodProgress, PodRequest};
use staffetta_driver::{DriverError, Owner, Reason, Uid};
use staffetta_handler::{EventNote, Failure, Written, causes};
use tracing::warn;

use super::node::was_made;
use crate::error::{REFUSED, VirtualNodeError};
use crate::machine::Machine;
use crate::node::{MachineView, NodeObject};
use crate::pod::{
    Change, PodFacts, PodObservation, PodTask, after_loss, decide, form, node_of, out_of_pods, patch, status,
};
use crate::recorder::EventReason;
use crate::shared::Shared;
use crate::triggers::{PodDue, pod_identity};

/// The number of consecutive steps for a pod that a reachable machine must leave unanswered before the failure is
/// reported.
const UNANSWERED: u8 = 3;

/// The waiting reason of a container about which the machine has reported nothing yet.
const CREATING: &str = "ContainerCreating";

/// The result of a step for a pod on its machine. After an incomplete step another reconciliation of the pod is
/// scheduled.
pub(super) enum Step {
    /// The pod is in its desired state on the machine.
    Complete,
    /// The machine has accepted the step. The text is its current state, for people.
    Working(String),
    /// The machine did not answer, which is not reported as a failure yet.
    Unanswered,
}

impl Shared {
    /// Takes one step towards the desired state of the pod `owner`. If no pod with this UID exists, the workload that it
    /// left on `node` is removed if necessary.
    pub(super) async fn reconcile_pod(&self, owner: &Owner, node: &str) -> Result<(), VirtualNodeError> {
        let Some(pod) = self.cluster.pod(&owner.uid) else { return self.clear_unowned(owner, node).await };
        // A machine may have had no room for the whole name.
        let owner = &Owner::of(&pod.metadata);
        let Some(machine) = self.node_store.get(node_of(&pod)) else { return Ok(()) };
        let view = machine.view();
        // The pods of a node that is not ours are due again when it becomes ours.
        if view.object != NodeObject::Ours {
            return Ok(());
        }
        let on_node = self.cluster.pods_on(&machine.name);
        if let Some(status) = out_of_pods(&pod, on_node.iter().map(|pod| &**pod), view.spec.max_pods) {
            self.pods.fresh(&pod)?;
            self.note_pod(owner, EventReason::OutOfPods, status["message"].as_str().unwrap_or_default());
            return self.send_status(&pod, status).await.map(drop);
        }
        self.report_ephemeral_containers(&pod, owner);
        let workload = machine.workload(&owner.uid);
        let record = self.records.get(&owner.uid).map(|record| record.clone()).unwrap_or_default();
        let facts = PodFacts {
            reachable: view.accepts_pods(),
            workload: workload.as_deref(),
            applied: record.applied,
            workload_seen: record.workload_seen,
        };
        // While the pod is being replaced, the last read may still show the former workload.
        let replaced = record.reported == Some(EventReason::Replaced);
        if workload.is_some() && !record.workload_seen && !replaced {
            self.records.entry(owner.uid.clone()).or_default().workload_seen = true;
        }
        let task = decide(&pod, &facts);
        if matches!(task, PodTask::Report | PodTask::Apply { .. } | PodTask::Remove)
            && workload.is_none()
            && was_made(&pod)
            && record.applied.is_none()
            && !record.workload_seen
            && !machine.is_expected(&owner.uid)
        {
            // An earlier process made it: the machine is read by one that knows this first.
            machine.wake_reader();
            self.wake(owner, &machine, self.config.policy.poll_interval);
            return Ok(());
        }
        match task {
            PodTask::Leave => Ok(()),
            PodTask::Wait => {
                self.reset_unanswered(owner);
                self.report_outage(&pod, owner, &view);
                Ok(())
            }
            PodTask::Report => {
                self.write_status(&pod, &machine, (CREATING, ""), Change::Nothing).await.map(drop)
            }
            PodTask::Apply { replaces, lost } => {
                if workload.is_none() && was_made(&pod) && record.applied.is_none() && !record.confirmed {
                    // An earlier process made it. Its pod may be gone since, although no event has shown that yet.
                    let exists = self.exists(owner).await;
                    if !exists.map_err(|error| VirtualNodeError::Owner(Box::new(error)))? {
                        return self.pod_is_gone(&pod).await;
                    }
                    self.records.entry(owner.uid.clone()).or_default().confirmed = true;
                }
                let mut rest = Arc::clone(&pod);
                if lost && !replaces {
                    let over = after_loss(&pod, workload.as_deref(), Timestamp::now());
                    let then =
                        if over.is_some() { "is not started again" } else { "is being deployed again" };
                    let text = format!("the machine lost containers of this pod; what it lost {then}");
                    self.report(owner, EventReason::Lost, text);
                    let left = over.as_ref().and_then(|over| over.spec.as_ref());
                    if left.is_some_and(|left| left.containers.is_empty()) {
                        return self
                            .write_status(&pod, &machine, (CREATING, ""), Change::Nothing)
                            .await
                            .map(drop);
                    }
                    rest = over.map_or(rest, Arc::new);
                }
                let applied = self.apply(&pod, rest, owner, &machine, replaces).await;
                let refused =
                    matches!(applied, Err(VirtualNodeError::Apply(_) | VirtualNodeError::Environment(_)));
                if lost && refused && self.change(owner, replaces) == Change::Refused {
                    let text =
                        "the machine lost the workload of this pod and rejects its current specification";
                    self.report(owner, EventReason::Lost, text);
                }
                applied
            }
            PodTask::Clear => self.take_removal_step(owner, &machine).await.map(drop),
            // Only the event of the deletion is still to come, or a finalizer of others keeps the object.
            PodTask::Remove if record.finished => Ok(()),
            PodTask::Remove => self.remove(&pod, owner, &machine).await,
        }
    }

    /// Takes one step to deploy `rest`, the pod without the containers that are over, on its machine, then writes the status of the pod,
    /// including the reason of a failure. `replaces` is `true` if the specification of the pod changed after it was deployed.
    async fn apply(
        &self,
        pod: &Arc<Pod>,
        rest: Arc<Pod>,
        owner: &Owner,
        machine: &Machine,
        replaces: bool,
    ) -> Result<(), VirtualNodeError> {
        let step = match self.environments.of(pod).await {
            Ok(environment) => {
                // The node may have been retired meanwhile.
                let Some(back_end) = machine.back_end().filter(|_| machine.view().accepts_pods()) else {
                    self.wake(owner, machine, self.config.policy.poll_interval);
                    return Ok(());
                };
                let request = PodRequest { pod: rest, environment };
                let progress =
                    if replaces { back_end.update(&request).await } else { back_end.apply(&request).await };
                // A machine that refuses the changed pod leaves its workload as it is.
                if replaces && progress.as_ref().is_ok_and(|progress| !progress.is_done()) {
                    let text = "the pod changed; its workload is being removed and deployed again";
                    self.report(owner, EventReason::Replaced, text);
                    self.records.entry(owner.uid.clone()).or_default().workload_seen = false;
                }
                self.step(owner, machine, progress, VirtualNodeError::Apply)
            }
            Err(error) => Err(VirtualNodeError::Environment(error)),
        };
        let change = self.change(owner, replaces);
        match step {
            Ok(Step::Complete) => {
                if self.record_deployed(owner, pod) {
                    let text = format!("the pod is deployed on the machine behind {}", machine.name);
                    self.note_pod(owner, EventReason::Deployed, text);
                }
                machine.wake_reader();
                if !replaces {
                    return self.write_status(pod, machine, (CREATING, ""), Change::Nothing).await.map(drop);
                }
                // The last read may still show the former workload.
                self.wake(owner, machine, self.config.policy.poll_interval);
                self.write_status(pod, machine, (CREATING, ""), Change::UnderWay).await.map(drop)
            }
            Ok(Step::Working(state)) => {
                machine.wake_reader();
                self.write_status(pod, machine, (CREATING, &state), change).await.map(drop)
            }
            Ok(Step::Unanswered) => Ok(()),
            Err(error) => {
                let (reason, why) = match &error {
                    VirtualNodeError::Failing { reason, message, .. } => (&**reason, message.clone()),
                    VirtualNodeError::Environment(_) if !error.transient() => (REFUSED, causes(&error)),
                    other => (other.reason(), causes(other)),
                };
                if self.write_status(pod, machine, (reason, &why), change).await? == Written::Gone {
                    return Ok(());
                }
                if error.is_of_pod_alone() {
                    // It ends when the pod changes, which is an event.
                    let reason = error.reason();
                    let before =
                        self.records.entry(owner.uid.clone()).or_default().failure.replace(reason.into());
                    if before.as_deref() != Some(reason) {
                        warn!(
                            namespace = owner.namespace,
                            name = owner.name,
                            uid = owner.uid.as_str(),
                            reason,
                            error = why,
                            "a pod cannot run as it is specified"
                        );
                        self.note_failure(owner, &error);
                    }
                    return Ok(());
                }
                Err(error)
            }
        }
    }

    /// Converts the result of a driver call into the result of a step, and schedules another reconciliation if the step
    /// is incomplete. `fail` wraps an error, unless [`Self::is_tolerated`] allows ignoring it.
    pub(super) fn step(
        &self,
        owner: &Owner,
        machine: &Machine,
        progress: Result<PodProgress, DriverError>,
        fail: fn(DriverError) -> VirtualNodeError,
    ) -> Result<Step, VirtualNodeError> {
        if progress.is_ok() {
            self.reset_unanswered(owner);
        }
        match progress {
            Ok(PodProgress::Done) => Ok(Step::Complete),
            Ok(PodProgress::Working { state, poll_after }) => {
                self.wake(owner, machine, poll_after);
                Ok(Step::Working(state))
            }
            Ok(PodProgress::Failing { reason, message, poll_after }) => {
                let before =
                    self.records.entry(owner.uid.clone()).or_default().failure.replace(reason.clone());
                let is_new = before.as_ref() != Some(&reason);
                let error = VirtualNodeError::Failing { reason, message, poll_after };
                if is_new {
                    self.note_failure(owner, &error);
                }
                Err(error)
            }
            Err(error) if self.is_tolerated(owner, machine, &error) => {
                self.wake(owner, machine, self.config.policy.poll_interval);
                Ok(Step::Unanswered)
            }
            Err(error) => Err(fail(error)),
        }
    }

    /// Returns the state of a change of the pod's specification on the machine: no change if `replaces` is `false`; otherwise under
    /// way once the machine has accepted the first step of the change, and refused before.
    fn change(&self, owner: &Owner, replaces: bool) -> Change {
        let reported = self.records.get(&owner.uid).and_then(|record| record.reported);
        match reported {
            _ if !replaces => Change::Nothing,
            Some(EventReason::Replaced) => Change::UnderWay,
            _ => Change::Refused,
        }
    }

    /// Records that the pod is deployed with its current specification. Returns `true` if the Event `Deployed` should be published: this
    /// process did not know of the deployment, or an Event about a change or a failure was published before, whose end this Event reports.
    pub(super) fn record_deployed(&self, owner: &Owner, pod: &Pod) -> bool {
        let mut record = self.records.entry(owner.uid.clone()).or_default();
        let known = record.applied.replace(form(pod)).is_some() || is_running(pod);
        let reported = record.reported.take().is_some();
        record.failure.take().is_some() || reported || !known
    }

    /// Returns `true` if the error of a step for the pod should not be reported yet, because the machine did not
    /// answer. The machine is read at once, and the result of that read decides whether there is an outage. If the
    /// machine keeps answering reads but not the steps for this pod, the third failure in a row is reported.
    pub(super) fn is_tolerated(&self, owner: &Owner, machine: &Machine, error: &DriverError) -> bool {
        if error.reason() != Reason::Unavailable {
            return false;
        }
        machine.wake_reader();
        if !machine.view().reach.answers() {
            return true;
        }
        let mut record = self.records.entry(owner.uid.clone()).or_default();
        record.unanswered = record.unanswered.saturating_add(1);
        record.unanswered < UNANSWERED
    }

    /// Resets the number of unanswered steps: the machine answered, or it is unreachable, which its reader reports.
    pub(super) fn reset_unanswered(&self, owner: &Owner) {
        if let Some(mut record) = self.records.get_mut(&owner.uid) {
            record.unanswered = 0;
        }
    }

    /// Schedules another reconciliation of the pod after `delay`.
    pub(super) fn wake(&self, owner: &Owner, machine: &Machine, delay: Duration) {
        self.delay_queue.wake(PodDue::new(owner, &machine.name), delay);
    }

    /// Computes the status of a pod and writes it, if it differs from the known one. `why` is the waiting reason and message of
    /// the containers while the machine has no workload of the pod.
    async fn write_status(
        &self,
        pod: &Arc<Pod>,
        machine: &Machine,
        why: (&str, &str),
        change: Change,
    ) -> Result<Written, VirtualNodeError> {
        let workload = machine.workload(&Owner::of(&pod.metadata).uid);
        let host_ip = machine.view().host_ip();
        let observation = PodObservation { workload: workload.as_deref(), why, change, host_ip };
        let now = Timestamp::now();
        let seen = self.records.get(&Owner::of(&pod.metadata).uid).is_some_and(|it| it.workload_seen);
        let over = after_loss(pod, workload.as_deref(), now).filter(|_| seen && change == Change::Nothing);
        // The specification stays that of the pod.
        let over = over.map(|over| Pod { spec: pod.spec.clone(), ..over });
        let wanted = status(over.as_ref().unwrap_or(pod), &observation, now);
        let Some(patch) = patch(pod, &wanted) else { return Ok(Written::Done) };
        self.pods.fresh(pod)?;
        self.send_status(pod, patch).await
    }

    /// Writes the status of a pod. If the API server does not have the pod any more, begins to remove its workload: the event of the
    /// deletion may come much later, and until then, the machine would get the workload again.
    async fn send_status(&self, pod: &Arc<Pod>, status: Value) -> Result<Written, VirtualNodeError> {
        let written = self.pods.status(pod, status).await.map_err(VirtualNodeError::Status)?;
        if written == Written::Gone {
            self.pod_is_gone(pod).await?;
        }
        Ok(written)
    }

    /// Publishes an Event for a pod that waits for its unreachable machine, unless the last Event about its deployment was
    /// that one. A pod that is deployed waits only if it is being deleted.
    fn report_outage(&self, pod: &Pod, owner: &Owner, machine: &MachineView) {
        let Some(outage) = machine.outage() else { return };
        let leaves = pod.metadata.deletion_timestamp.is_some();
        let applied = self.records.get(&owner.uid).is_some_and(|record| record.applied.is_some());
        if leaves || !(applied || is_running(pod)) {
            let (name, waiting) =
                (&machine.spec.name, if leaves { "the deletion of the pod" } else { "the pod" });
            let (state, why) = (outage.state(), &outage.message);
            let text = format!("the machine behind {name} {state}; {waiting} waits: {why}");
            let misdescribed = outage.is_misdescribed();
            let reason = if misdescribed { EventReason::Misdescribed } else { EventReason::Waits };
            self.report(owner, reason, text);
        }
    }

    /// Publishes an Event about a failure that the machine reported. The middleware that reports failed attempts would be late for a
    /// deployment that fails again and again, because each repeated step succeeds at first.
    fn note_failure(&self, owner: &Owner, error: &VirtualNodeError) {
        let (handler, regarding) = (self.config.handler, pod_identity(owner));
        let (reason, text) = (error.reason(), causes(error));
        self.config.recorder.record(EventNote { handler, regarding, warning: true, reason, text });
    }

    /// Publishes an Event if the pod has got ephemeral containers, which no machine supports. They are ignored.
    fn report_ephemeral_containers(&self, pod: &Pod, owner: &Owner) {
        let added = pod.spec.as_ref().and_then(|spec| spec.ephemeral_containers.as_ref()).map_or(0, Vec::len);
        if added == 0 {
            return;
        }
        let before =
            std::mem::replace(&mut self.records.entry(owner.uid.clone()).or_default().ephemeral, added);
        if added > before {
            let text = "spec.ephemeralContainers: the machine behind this node does not support them; they are ignored";
            self.note_pod(owner, EventReason::Unsupported, text);
        }
    }

    /// Publishes an Event on a pod, unless the last one for its deployment had the same reason.
    fn report(&self, owner: &Owner, reason: EventReason, text: impl Into<String>) {
        let before = self.records.entry(owner.uid.clone()).or_default().reported.replace(reason);
        if before != Some(reason) {
            self.note_pod(owner, reason, text);
        }
    }

    /// Removes all in-memory records of a pod.
    pub(crate) fn forget(&self, uid: &Uid) {
        self.records.remove(uid);
        self.environments.forget(uid.as_str());
        self.delay_queue.forget(uid);
        self.pods.forget(uid.as_str());
    }
}

/// Returns `true` if the phase of the pod is `Running`: this process or an earlier one has deployed it.
fn is_running(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
}
