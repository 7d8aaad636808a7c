//! Settles a pod: one step nearer to what it is to be, and its status.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use staffetta_driver::virtual_node::{PodRequest, Progress};
use staffetta_driver::{DriverError, Owner, Reason, Uid};
use staffetta_handler::{Failure, causes};

use super::node_of;
use crate::error::VirtualNodeError;
use crate::machine::{Machine, NodeObject};
use crate::notes::{Told, pod_note};
use crate::pod::{Change, Facts, Seen, Task, decide, form, patch, status};
use crate::shared::Shared;
use crate::signals::PodDue;

/// How often in a row a machine that can be reached may leave a step for a pod unanswered before somebody is told.
const UNANSWERED: u8 = 3;

/// What a pod waits for before anything is known of it.
const CREATING: &str = "ContainerCreating";

impl Shared {
    /// Brings a pod one step nearer to what it is to be.
    pub(super) async fn settle_pod(&self, owner: &Owner, node: &str) -> Result<(), VirtualNodeError> {
        let Some(pod) = self.cluster.pod(&owner.uid) else { return self.clear_stranger(owner, node).await };
        // A machine may have had no room for the whole name.
        let owner = &Owner::of(&pod.metadata);
        let Some(machine) = self.fleet.get(node_of(&pod)) else { return Ok(()) };
        // Whoever keeps the node takes care of its pods. They come again when it is ours.
        if machine.object() != NodeObject::Ours {
            return Ok(());
        }
        self.tell_of_ephemeral_containers(&pod, owner);
        let workload = machine.workload(&owner.uid);
        let record = self.records.get(&owner.uid).map(|record| record.clone()).unwrap_or_default();
        let facts = Facts {
            reachable: machine.works(),
            workload: workload.as_deref(),
            applied: record.applied,
            was_there: record.was_there,
        };
        if workload.is_some() && !record.was_there {
            self.records.entry(owner.uid.clone()).or_default().was_there = true;
        }
        match decide(&pod, &facts) {
            Task::Leave => Ok(()),
            Task::Wait => {
                self.answered(owner);
                self.tell_of_outage(&pod, owner, &machine);
                Ok(())
            }
            Task::Tell => self.write_status(&pod, &machine, (CREATING, ""), Change::Nothing).await,
            Task::Apply { replaces, lost } => {
                if lost && !replaces {
                    let text = "the machine does not have any more what it had of this pod; it is made anew";
                    self.tell(owner, Told::Lost, text.to_owned());
                }
                let applied = self.apply(&pod, owner, &machine, replaces).await;
                if lost && is_refused(&applied) && self.change(owner, replaces) == Change::Refused {
                    let text = "the machine does not have any more what it had of this pod, and refuses what the pod is by now";
                    self.tell(owner, Told::Lost, text.to_owned());
                }
                applied
            }
            Task::Clear => self.is_rid(owner, &machine).await.map(drop),
            // Only the event that says so is still to come, or somebody's finalizer keeps the object.
            Task::Remove if record.finished => Ok(()),
            Task::Remove => self.remove(&pod, owner, &machine).await,
        }
    }

    async fn apply(
        &self,
        pod: &Arc<Pod>,
        owner: &Owner,
        machine: &Arc<Machine>,
        replaces: bool,
    ) -> Result<(), VirtualNodeError> {
        let request = match self.request(pod).await {
            Ok(request) => request,
            Err(error) => return self.refused(pod, machine, error, self.change(owner, replaces)).await,
        };
        // Its device may have begun to leave meanwhile.
        let Some(back_end) = machine.back_end().filter(|_| machine.works()) else {
            return self.later(owner, machine, self.policy.poll_interval);
        };
        let progress =
            if replaces { back_end.update(&request).await } else { back_end.apply(&request).await };
        if let Ok(progress) = &progress {
            self.answered(owner);
            // A machine that refuses what the pod is now leaves what runs of it as it is.
            if replaces && !progress.is_done() {
                let text = "the pod changed: what runs of it is removed and made anew";
                self.tell(owner, Told::Replaced, text.to_owned());
            }
        }
        match progress {
            Ok(Progress::Done) => {
                if self.is_there(owner, pod) {
                    let pod_there = format!("the pod is on the machine behind {}", machine.name());
                    self.notes.tell(pod_note(self.handler, owner, Told::Deployed, pod_there));
                }
                machine.poke();
                self.write_status(pod, machine, (CREATING, ""), Change::Nothing).await
            }
            Ok(Progress::Working { state, ask_again }) => {
                self.agenda.wake(PodDue::new(owner, machine.name()), ask_again);
                machine.poke();
                self.write_status(pod, machine, (CREATING, &state), self.change(owner, replaces)).await
            }
            Ok(Progress::Failing { reason, message, ask_again }) => {
                let error = VirtualNodeError::Failing { reason: reason.into_owned(), message, ask_again };
                self.refused(pod, machine, error, self.change(owner, replaces)).await
            }
            Err(error) if self.is_borne(owner, machine, &error) => {
                self.later(owner, machine, self.policy.poll_interval)
            }
            Err(error) => {
                let error = VirtualNodeError::Apply(error);
                self.refused(pod, machine, error, self.change(owner, replaces)).await
            }
        }
    }

    /// How the pod stands to what runs of it. That is made anew from the first step on that its machine does for it, which is told.
    fn change(&self, owner: &Owner, replaces: bool) -> Change {
        let told = self.records.get(&owner.uid).and_then(|record| record.told);
        match told {
            _ if !replaces => Change::Nothing,
            Some(Told::Replaced) => Change::UnderWay,
            _ => Change::Refused,
        }
    }

    /// The pod is on its machine in its present form. Answers whether that is worth telling.
    fn is_there(&self, owner: &Owner, pod: &Pod) -> bool {
        let mut record = self.records.entry(owner.uid.clone()).or_default();
        let known = record.applied.replace(form(pod)).is_some() || runs(pod);
        record.told.take().is_some() || !known
    }

    /// What the pod asks its machine for.
    async fn request(&self, pod: &Arc<Pod>) -> Result<PodRequest, VirtualNodeError> {
        let environment = self.environments.of(pod).await.map_err(VirtualNodeError::Environment)?;
        Ok(PodRequest { pod: Arc::clone(pod), environment })
    }

    /// The pod stays as it is, and its status says why.
    async fn refused(
        &self,
        pod: &Pod,
        machine: &Machine,
        error: VirtualNodeError,
        change: Change,
    ) -> Result<(), VirtualNodeError> {
        let (reason, why) = match &error {
            VirtualNodeError::Failing { reason, message, .. } => (reason.as_str(), message.clone()),
            other => (other.reason(), causes(other)),
        };
        self.write_status(pod, machine, (reason, &why), change).await?;
        Err(error)
    }

    /// Whether a failed step is nobody's business yet: the machine did not answer. Only its reader knocks at one that does so, it is
    /// read now, and the pod waits for what comes of it. One that goes on answering its reader, and not for the pod, is no outage.
    pub(super) fn is_borne(&self, owner: &Owner, machine: &Machine, error: &DriverError) -> bool {
        if error.reason() != Reason::Unavailable {
            return false;
        }
        machine.poke();
        if !machine.answers() {
            return true;
        }
        let mut record = self.records.entry(owner.uid.clone()).or_default();
        record.unanswered = record.unanswered.saturating_add(1);
        record.unanswered < UNANSWERED
    }

    /// The machine answered, or cannot be reached at all.
    pub(super) fn answered(&self, owner: &Owner) {
        if let Some(mut record) = self.records.get_mut(&owner.uid) {
            record.unanswered = 0;
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "it ends the turn of its callers")]
    pub(super) fn later(
        &self,
        owner: &Owner,
        machine: &Arc<Machine>,
        wait: Duration,
    ) -> Result<(), VirtualNodeError> {
        self.agenda.wake(PodDue::new(owner, machine.name()), wait);
        Ok(())
    }

    async fn write_status(
        &self,
        pod: &Pod,
        machine: &Machine,
        why: (&str, &str),
        change: Change,
    ) -> Result<(), VirtualNodeError> {
        let workload = machine.workload(&Owner::of(&pod.metadata).uid);
        let seen = Seen { workload: workload.as_deref(), why, change, host_ip: machine.host_ip() };
        let Some(patch) = patch(pod, &status(pod, &seen, Timestamp::now())) else { return Ok(()) };
        self.pods.fresh(pod)?;
        self.pods.status(pod, patch).await.map(drop).map_err(VirtualNodeError::Status)
    }

    /// A pod that waits for its machine says so, once an outage. One that is on its machine waits for nothing until it is deleted.
    fn tell_of_outage(&self, pod: &Pod, owner: &Owner, machine: &Machine) {
        let Some(outage) = machine.outage() else { return };
        let leaves = pod.metadata.deletion_timestamp.is_some();
        let settled = self.records.get(&owner.uid).is_some_and(|record| record.applied.is_some());
        if leaves || !settled {
            let waiting = if leaves { "the deletion of the pod" } else { "the pod" };
            let text =
                format!("{} cannot be reached, {waiting} waits for it: {}", machine.name(), outage.message);
            self.tell(owner, Told::Waits, text);
        }
    }

    /// Nothing can be added to what runs on a machine. The pod goes on without, and who asked for it learns why nothing comes of it.
    fn tell_of_ephemeral_containers(&self, pod: &Pod, owner: &Owner) {
        let added =
            pod.spec.as_ref().and_then(|spec| spec.ephemeral_containers.as_deref()).unwrap_or_default();
        if added.is_empty() {
            return;
        }
        let mut record = self.records.entry(owner.uid.clone()).or_default();
        if added.len() > std::mem::replace(&mut record.ephemeral, added.len()) {
            let text =
                "spec.ephemeralContainers: nothing can be added to what runs on the machine behind this node";
            self.notes.tell(pod_note(self.handler, owner, Told::Unsupported, text.to_owned()));
        }
    }

    /// Tells something once, until something else is told.
    fn tell(&self, owner: &Owner, told: Told, text: String) {
        let before = self.records.entry(owner.uid.clone()).or_default().told.replace(told);
        if before != Some(told) {
            self.notes.tell(pod_note(self.handler, owner, told, text));
        }
    }

    /// Nothing is known of the pod any more.
    pub(crate) fn forget(&self, uid: &Uid) {
        self.records.remove(uid);
        self.environments.forget(uid.as_str());
        self.agenda.forget(uid.as_str());
        self.pods.forget(uid.as_str());
    }
}

/// Whether a pod ran before this process looked at it.
fn runs(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
}

/// Whether nothing was made of a pod because of what it is.
fn is_refused(applied: &Result<(), VirtualNodeError>) -> bool {
    matches!(applied, Err(VirtualNodeError::Apply(_) | VirtualNodeError::Environment(_)))
}
