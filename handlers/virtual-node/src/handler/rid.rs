//! Rids machines of pods.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams, ObjectMeta};
use staffetta_driver::Owner;
use staffetta_driver::virtual_node::Progress;

use super::{gone, only};
use crate::error::VirtualNodeError;
use crate::machine::Machine;
use crate::notes::{Told, pod_note};
use crate::pod::over;
use crate::shared::Shared;

impl Shared {
    /// Rids the machine of a pod whose deletion was asked for, and ends the deletion: nobody else does.
    pub(super) async fn remove(
        &self,
        pod: &Pod,
        owner: &Owner,
        machine: &Arc<Machine>,
    ) -> Result<(), VirtualNodeError> {
        if !self.is_rid(owner, machine).await? {
            return Ok(());
        }
        // Somebody's finalizer may keep the object, a Job's for one: it is to say that nothing of the pod runs any more.
        if let Some(over) = over(pod, Timestamp::now()) {
            self.pods.fresh(pod)?;
            self.pods.status(pod, over).await.map_err(VirtualNodeError::Status)?;
        }
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &owner.namespace);
        let params = DeleteParams { grace_period_seconds: Some(0), ..only(pod.metadata.uid.as_ref()) };
        gone(pods.delete(&owner.name, &params).await.map(drop))
            .map_err(|error| VirtualNodeError::Delete(Box::new(error)))?;
        self.forget(&owner.uid);
        self.records.entry(owner.uid.clone()).or_default().finished = true;
        Ok(())
    }

    /// A pod is no more. Of one that was finished here nothing is left.
    pub(super) async fn pod_is_gone(&self, owner: &Owner, node: &str) -> Result<(), VirtualNodeError> {
        if self.records.get(&owner.uid).is_some_and(|record| record.finished) {
            self.forget(&owner.uid);
            return Ok(());
        }
        self.clear_pod(owner, node).await
    }

    /// What runs on a machine and has no pod: it is removed if its pod went while this process looked on, or if it is ours and
    /// nobody has come for it.
    pub(super) async fn clear_stranger(&self, owner: &Owner, node: &str) -> Result<(), VirtualNodeError> {
        let clearing = self.records.get(&owner.uid).is_some_and(|record| record.clearing);
        let orphan = || self.fleet.get(node).is_some_and(|machine| machine.has_orphan(&owner.uid));
        if clearing || orphan() { self.clear_pod(owner, node).await } else { Ok(()) }
    }

    /// What runs on a machine of a pod that is no more.
    async fn clear_pod(&self, owner: &Owner, node: &str) -> Result<(), VirtualNodeError> {
        self.pods.forget(owner.uid.as_str());
        let Some(machine) = self.fleet.get(node).filter(|machine| machine.works()) else {
            self.forget(&owner.uid);
            return Ok(());
        };
        self.records.entry(owner.uid.clone()).or_default().clearing = true;
        if self.exists(owner).await.map_err(|error| VirtualNodeError::Owner(Box::new(error)))? {
            self.forget(&owner.uid);
            return Ok(());
        }
        if self.is_rid(owner, &machine).await? {
            if machine.workload(&owner.uid).is_some() {
                let text = "the pod is no more; nothing of it is left on the machine".to_owned();
                self.notes.tell(pod_note(self.handler, owner, Told::Removed, text));
            }
            self.forget(&owner.uid);
        }
        Ok(())
    }

    /// Whether the pod exists: one that this program cannot decode is in no index, and exists all the same. Of a name for which a
    /// machine had no room, the whole namespace is asked.
    async fn exists(&self, owner: &Owner) -> kube::Result<bool> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &owner.namespace);
        let is_it = |metadata: &ObjectMeta| metadata.uid.as_deref() == Some(owner.uid.as_str());
        let whole = owner.name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
        if whole {
            let there = pods.get_metadata_opt(&owner.name).await?;
            return Ok(there.is_some_and(|there| is_it(&there.metadata)));
        }
        let all = pods.list_metadata(&ListParams::default()).await?;
        Ok(all.iter().any(|there| is_it(&there.metadata)))
    }

    /// One step nearer to a machine without anything of `owner`. Answers whether that is so; if not, it is looked at again.
    pub(super) async fn is_rid(
        &self,
        owner: &Owner,
        machine: &Arc<Machine>,
    ) -> Result<bool, VirtualNodeError> {
        let Some(back_end) = machine.back_end() else {
            return self.later(owner, machine, self.policy.poll_interval).map(|()| false);
        };
        let progress = back_end.remove(owner).await;
        if progress.is_ok() {
            self.answered(owner);
        }
        match progress {
            Ok(Progress::Done) => {
                machine.poke();
                Ok(true)
            }
            Ok(Progress::Working { ask_again, .. }) => self.later(owner, machine, ask_again).map(|()| false),
            Ok(Progress::Failing { reason, message, ask_again }) => {
                Err(VirtualNodeError::Failing { reason: reason.into_owned(), message, ask_again })
            }
            Err(error) if self.is_borne(owner, machine, &error) => {
                self.later(owner, machine, self.policy.poll_interval).map(|()| false)
            }
            Err(error) => Err(VirtualNodeError::Remove(error)),
        }
    }
}
