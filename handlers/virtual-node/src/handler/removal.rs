//! Removes the workloads of pods from machines.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams, ObjectMeta};
use staffetta_driver::{Owner, Uid};

use super::pod::Step;
use super::{gone, only};
use crate::back_end::PodRemoval;
use crate::error::VirtualNodeError;
use crate::machine::Machine;
use crate::pod::{final_status, node_of};
use crate::recorder::EventReason;
use crate::shared::{Removal, Shared};

/// The maximum number of deleted pods whose workloads are to be removed once their machines can be reached.
const AWAITED: usize = 1000;

impl Shared {
    /// Takes one step to remove a pod with a deletion timestamp from its machine. When nothing is left there, the last
    /// status is written and the pod object is deleted with a grace period of 0, as a kubelet does.
    pub(super) async fn remove(
        &self,
        pod: &Pod,
        owner: &Owner,
        machine: &Machine,
    ) -> Result<(), VirtualNodeError> {
        if !self.take_removal_step(owner, machine).await? {
            return Ok(());
        }
        // A finalizer, a Job's for one, may keep the object: its status is to say that nothing of the pod runs any more.
        if let Some(status) = final_status(pod, Timestamp::now()) {
            self.pods.fresh(pod)?;
            self.pods.status(pod, status).await.map_err(VirtualNodeError::Status)?;
        }
        let pods: Api<Pod> = Api::namespaced(self.config.client.clone(), &owner.namespace);
        let params = DeleteParams { grace_period_seconds: Some(0), ..only(pod.metadata.uid.as_ref()) };
        gone(pods.delete(&owner.name, &params).await.map(drop))
            .map_err(|error| VirtualNodeError::Delete(Box::new(error)))?;
        self.forget(&owner.uid);
        self.records.entry(owner.uid.clone()).or_default().finished = true;
        Ok(())
    }

    /// Returns the last state of a pod whose deletion no watch reported; `None` if it was on no virtual node. The index
    /// has it in the first attempt only, and the record of the pod in the following ones.
    pub(super) fn missed_pod(&self, uid: &Uid) -> Option<Arc<Pod>> {
        let recorded = || self.records.get(uid).and_then(|record| record.deleted.clone());
        self.cluster.take_missed(uid.as_str()).or_else(recorded)
    }

    /// Handles the deletion of a pod, which the watch or the response to a write has shown: removes its workload, unless this process has
    /// completed the deletion itself.
    pub(super) async fn pod_is_gone(&self, pod: &Arc<Pod>) -> Result<(), VirtualNodeError> {
        let (owner, node) = (&Owner::of(&pod.metadata), node_of(pod));
        if self.records.get(&owner.uid).is_some_and(|record| record.finished) {
            self.forget(&owner.uid);
            return Ok(());
        }
        self.records.entry(owner.uid.clone()).or_default().deleted = Some(Arc::clone(pod));
        self.clear_pod(owner, node).await
    }

    /// Handles a workload without a pod. The workload is removed if its pod was deleted while this process ran, or if
    /// it carries the ownership mark of this cluster and has had no pod for `Policy::orphan_grace`.
    pub(super) async fn clear_unowned(&self, owner: &Owner, node: &str) -> Result<(), VirtualNodeError> {
        let clearing =
            self.records.get(&owner.uid).is_some_and(|record| record.removal != Removal::Outstanding);
        let orphan = || self.node_store.get(node).is_some_and(|machine| machine.has_orphan(&owner.uid));
        if clearing || orphan() { self.clear_pod(owner, node).await } else { Ok(()) }
    }

    /// Takes one step to remove the workload of a deleted pod, after a check at the API server that the pod does not
    /// exist.
    async fn clear_pod(&self, owner: &Owner, node: &str) -> Result<(), VirtualNodeError> {
        self.pods.forget(owner.uid.as_str());
        let machine = self.node_store.get(node);
        let Some(machine) = machine.filter(|machine| machine.view().may_have_pods()) else {
            self.forget(&owner.uid);
            return Ok(());
        };
        if !machine.view().accepts_pods() {
            // It may come back with the workload.
            self.await_machine(owner, &machine);
            return Ok(());
        }
        {
            let mut record = self.records.entry(owner.uid.clone()).or_default();
            if record.removal == Removal::Outstanding {
                record.removal = Removal::Begun;
            }
        }
        if self.exists(owner).await.map_err(|error| VirtualNodeError::Owner(Box::new(error)))? {
            self.forget(&owner.uid);
            return Ok(());
        }
        self.cluster.remove_absent(&owner.uid);
        if self.take_removal_step(owner, &machine).await? {
            if machine.workload(&owner.uid).is_some() {
                let text = "the deleted pod was removed from its machine";
                self.note_pod(owner, EventReason::Removed, text);
            }
            self.forget(&owner.uid);
        }
        Ok(())
    }

    /// Schedules the removal of the workload of a deleted pod for when its machine can be reached again. If
    /// [`AWAITED`] other deleted pods wait when this one begins to, the workload stays.
    fn await_machine(&self, owner: &Owner, machine: &Machine) {
        let waits = self.records.get(&owner.uid).is_some_and(|record| record.removal == Removal::Awaited);
        let others =
            self.records.iter().filter(|record| record.deleted.is_some() && *record.key() != owner.uid);
        if !waits && others.count() >= AWAITED {
            self.forget(&owner.uid);
            return;
        }
        self.records.entry(owner.uid.clone()).or_default().removal = Removal::Awaited;
        self.wake(owner, machine, self.config.policy.poll_interval);
    }

    /// Asks the API server for the pod `owner`, and returns `true` if it exists. (A pod that cannot be decoded exists, but is in
    /// no index.) If the machine stores only a shortened name of the pod, all pods of the namespace are listed.
    pub(super) async fn exists(&self, owner: &Owner) -> kube::Result<bool> {
        let pods: Api<Pod> = Api::namespaced(self.config.client.clone(), &owner.namespace);
        let is_it = |metadata: &ObjectMeta| metadata.uid.as_deref() == Some(owner.uid.as_str());
        let whole = owner.name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
        if whole {
            let there = pods.get_metadata_opt(&owner.name).await?;
            return Ok(there.is_some_and(|there| is_it(&there.metadata)));
        }
        let all = pods.list_metadata(&ListParams::default()).await?;
        Ok(all.iter().any(|there| is_it(&there.metadata)))
    }

    /// Takes one step to remove the workload of the pod `owner` from the machine. Returns `true` if nothing is left;
    /// otherwise another reconciliation is scheduled.
    pub(super) async fn take_removal_step(
        &self,
        owner: &Owner,
        machine: &Machine,
    ) -> Result<bool, VirtualNodeError> {
        let Some(back_end) = machine.back_end() else {
            self.wake(owner, machine, self.config.policy.poll_interval);
            return Ok(false);
        };
        let deleted = || self.records.get(&owner.uid).and_then(|record| record.deleted.clone());
        let pod = self.cluster.pod(&owner.uid).or_else(deleted);
        let workload = machine.workload(&owner.uid);
        let removal = PodRemoval { owner: owner.clone(), pod, workload };
        let progress = back_end.remove(&removal).await;
        let step = self.step(owner, machine, progress, VirtualNodeError::Remove)?;
        let removed = matches!(step, Step::Complete);
        if removed {
            machine.wake_reader();
        }
        Ok(removed)
    }
}
