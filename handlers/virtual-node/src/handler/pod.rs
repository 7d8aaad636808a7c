//! Reconciles a pod: one step nearer to its desired state, and its status.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use staffetta_driver::virtual_node::{PodProgress, PodRequest};
use staffetta_driver::{DriverError, Owner, Reason, Uid};
use staffetta_handler::{Failure, causes};

use super::node_of;
use crate::error::VirtualNodeError;
use crate::machine::Machine;
use crate::node::{MachineView, NodeObject};
use crate::pod::{Change, PodFacts, PodObservation, PodTask, decide, form, patch, status};
use crate::recorder::EventReason;
use crate::shared::Shared;
use crate::triggers::PodDue;

/// The number of consecutive unanswered steps for a pod, on a reachable machine, before the failure is reported.
const UNANSWERED: u8 = 3;

/// The waiting reason of a container of which nothing is known yet.
const CREATING: &str = "ContainerCreating";

/// The result of a step on a machine. If it is not complete, the pod is reconciled again later.
pub(super) enum Step {
    Complete,
    /// The machine works on it, as it says in these words.
    Working(String),
    /// The machine did not answer.
    Unanswered,
}

impl Shared {
    /// Brings a pod one step nearer to its desired state.
    pub(super) async fn reconcile_pod(&self, owner: &Owner, node: &str) -> Result<(), VirtualNodeError> {
        let Some(pod) = self.cluster.pod(&owner.uid) else { return self.clear_stranger(owner, node).await };
        // A machine may have had no room for the whole name.
        let owner = &Owner::of(&pod.metadata);
        let Some(machine) = self.node_store.get(node_of(&pod)) else { return Ok(()) };
        let view = machine.view();
        // The pods of a node that is not ours are due again when it becomes ours.
        if view.object != NodeObject::Ours {
            return Ok(());
        }
        self.report_ephemeral_containers(&pod, owner);
        let workload = machine.workload(&owner.uid);
        let record = self.records.get(&owner.uid).map(|record| record.clone()).unwrap_or_default();
        let facts = PodFacts {
            reachable: view.accepts_pods(),
            workload: workload.as_deref(),
            applied: record.applied,
            was_there: record.was_there,
        };
        if workload.is_some() && !record.was_there {
            self.records.entry(owner.uid.clone()).or_default().was_there = true;
        }
        match decide(&pod, &facts) {
            PodTask::Leave => Ok(()),
            PodTask::Wait => {
                self.reset_unanswered(owner);
                self.report_outage(&pod, owner, &view);
                Ok(())
            }
            PodTask::Report => self.write_status(&pod, &machine, (CREATING, ""), Change::Nothing).await,
            PodTask::Apply { replaces, lost } => {
                if lost && !replaces {
                    let text = "the machine lost the workload of this pod; it is being deployed again";
                    self.report(owner, EventReason::Lost, text);
                }
                let applied = self.apply(&pod, owner, &machine, replaces).await;
                let refused =
                    matches!(applied, Err(VirtualNodeError::Apply(_) | VirtualNodeError::Environment(_)));
                if lost && refused && self.change(owner, replaces) == Change::Refused {
                    let text =
                        "the machine lost the workload of this pod and rejects its current specification";
                    self.report(owner, EventReason::Lost, text);
                }
                applied
            }
            PodTask::Clear => self.is_removed(owner, &machine).await.map(drop),
            // Only the event of the deletion is still to come, or a finalizer of others keeps the object.
            PodTask::Remove if record.finished => Ok(()),
            PodTask::Remove => self.remove(&pod, owner, &machine).await,
        }
    }

    /// Takes one step to deploy the pod on its machine, and writes its status, with the reason of a refusal.
    async fn apply(
        &self,
        pod: &Arc<Pod>,
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
                let request = PodRequest { pod: Arc::clone(pod), environment };
                let progress =
                    if replaces { back_end.update(&request).await } else { back_end.apply(&request).await };
                // A machine that refuses the changed pod leaves its workload as it is.
                if replaces && progress.as_ref().is_ok_and(|progress| !progress.is_done()) {
                    let text = "the pod changed; its workload is being removed and deployed again";
                    self.report(owner, EventReason::Replaced, text);
                }
                self.step(owner, machine, progress, VirtualNodeError::Apply)
            }
            Err(error) => Err(VirtualNodeError::Environment(error)),
        };
        let change = self.change(owner, replaces);
        match step {
            Ok(Step::Complete) => {
                if self.is_news(owner, pod) {
                    let text = format!("the pod is deployed on the machine behind {}", machine.name);
                    self.note_pod(owner, EventReason::Deployed, text);
                }
                machine.wake_reader();
                self.write_status(pod, machine, (CREATING, ""), Change::Nothing).await
            }
            Ok(Step::Working(state)) => {
                machine.wake_reader();
                self.write_status(pod, machine, (CREATING, &state), change).await
            }
            Ok(Step::Unanswered) => Ok(()),
            Err(error) => {
                let (reason, why) = match &error {
                    VirtualNodeError::Failing { reason, message, .. } => (reason.as_str(), message.clone()),
                    other => (other.reason(), causes(other)),
                };
                self.write_status(pod, machine, (reason, &why), change).await?;
                Err(error)
            }
        }
    }

    /// The result of a step for a pod, from the machine's answer. A machine that does not answer is not a failure yet, if
    /// [`Self::is_tolerated`] says so.
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
                Err(VirtualNodeError::Failing { reason: reason.into_owned(), message, poll_after })
            }
            Err(error) if self.is_tolerated(owner, machine, &error) => {
                self.wake(owner, machine, self.config.policy.poll_interval);
                Ok(Step::Unanswered)
            }
            Err(error) => Err(fail(error)),
        }
    }

    /// The relation of the pod to its running workload. A workload that is replaced counts as new from the first step
    /// that the machine completes.
    fn change(&self, owner: &Owner, replaces: bool) -> Change {
        let reported = self.records.get(&owner.uid).and_then(|record| record.reported);
        match reported {
            _ if !replaces => Change::Nothing,
            Some(EventReason::Replaced) => Change::UnderWay,
            _ => Change::Refused,
        }
    }

    /// Records that the pod is on its machine in its current form. Returns `true` if that is worth an Event.
    fn is_news(&self, owner: &Owner, pod: &Pod) -> bool {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let mut record = self.records.entry(owner.uid.clone()).or_default();
        let known = record.applied.replace(form(pod)).is_some() || phase == Some("Running");
        record.reported.take().is_some() || !known
    }

    /// Returns `true` if a failed step need not be reported yet because the machine did not answer. Only the reader
    /// retries such a machine; it is read at once and the pod waits for the result. A machine that keeps answering
    /// its reader but not the pod's requests is not an outage.
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

    /// Resets the count of unanswered steps: the machine answered, or its outage is reported by the reader instead.
    pub(super) fn reset_unanswered(&self, owner: &Owner) {
        if let Some(mut record) = self.records.get_mut(&owner.uid) {
            record.unanswered = 0;
        }
    }

    /// Schedules another reconciliation of the pod.
    pub(super) fn wake(&self, owner: &Owner, machine: &Machine, delay: Duration) {
        self.delay_queue.wake(PodDue::new(owner, &machine.name), delay);
    }

    async fn write_status(
        &self,
        pod: &Pod,
        machine: &Machine,
        why: (&str, &str),
        change: Change,
    ) -> Result<(), VirtualNodeError> {
        let workload = machine.workload(&Owner::of(&pod.metadata).uid);
        let host_ip = machine.view().host_ip();
        let observation = PodObservation { workload: workload.as_deref(), why, change, host_ip };
        let Some(patch) = patch(pod, &status(pod, &observation, Timestamp::now())) else { return Ok(()) };
        self.pods.fresh(pod)?;
        self.pods.status(pod, patch).await.map(drop).map_err(VirtualNodeError::Status)
    }

    /// Reports once an outage that a pod waits for its machine. A pod that is on its machine waits only for its deletion.
    fn report_outage(&self, pod: &Pod, owner: &Owner, machine: &MachineView) {
        let Some(outage) = machine.outage() else { return };
        let leaves = pod.metadata.deletion_timestamp.is_some();
        let applied = self.records.get(&owner.uid).is_some_and(|record| record.applied.is_some());
        if leaves || !applied {
            let (name, waiting) =
                (&machine.spec.name, if leaves { "the deletion of the pod" } else { "the pod" });
            let text =
                format!("the machine behind {name} cannot be reached; {waiting} waits: {}", outage.message);
            self.report(owner, EventReason::Waits, text);
        }
    }

    /// Reports ephemeral containers, which no machine supports. The pod goes on without them.
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

    /// Records an Event on a pod, unless it was the last one.
    fn report(&self, owner: &Owner, reason: EventReason, text: impl Into<String>) {
        let before = self.records.entry(owner.uid.clone()).or_default().reported.replace(reason);
        if before != Some(reason) {
            self.note_pod(owner, reason, text);
        }
    }

    /// Forgets everything about a pod.
    pub(crate) fn forget(&self, uid: &Uid) {
        self.records.remove(uid);
        self.environments.forget(uid.as_str());
        self.delay_queue.forget(uid);
        self.pods.forget(uid.as_str());
    }
}
