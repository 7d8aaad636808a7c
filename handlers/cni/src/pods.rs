//! The table of the node's pods with their VIFs, in which commands wait for a VIF.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use staffetta_network::os_vif::PodState;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::acceptance::{Acceptance, Proofs};
use crate::target::PodTarget;

/// The annotation of a static pod with the UID that the container runtime knows.
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";
/// The number of deleted pods whose UIDs are remembered, so that a late command for one fails at once.
const MAX_REMEMBERED_DELETIONS: usize = 1000;

/// A pod of the node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PodEntry {
    /// The UID of the pod.
    pub(crate) uid: String,
    namespace: String,
    name: String,
    /// The UID by which the container runtime knows the pod, if it is a static pod; `None` for any other pod.
    mirror: Option<String>,
    /// The VIFs in the pod's annotation, or the reason why it has none that can be bound.
    pub(crate) vifs: Result<PodState, String>,
    proofs: Proofs,
}

/// The result of waiting until a pod is as a command requires.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Found {
    /// The pod is as the command requires.
    Ready(Box<PodEntry>),
    /// The pod was deleted.
    Gone,
    /// The time limit has passed. Contains the pod as it is now, if it exists.
    NotYet(Option<Box<PodEntry>>),
}

/// The table of the node's pods, in which commands wait until their pod is as they require.
#[derive(Default)]
pub(crate) struct PodTable {
    table: watch::Sender<Table>,
    acceptance: Acceptance,
}

/// The pods of the node by UID, and the UIDs of the last deleted pods, at most [`MAX_REMEMBERED_DELETIONS`], the oldest first.
#[derive(Default)]
struct Table {
    pods: HashMap<String, PodEntry>,
    deleted: VecDeque<String>,
}

impl PodTable {
    /// Creates an empty table, whose pods have the VIFs that `acceptance` permits.
    pub(crate) fn accepting(acceptance: Acceptance) -> Self {
        Self { table: watch::Sender::default(), acceptance }
    }

    /// Adds or replaces a pod, and wakes the commands that wait for it. A pod in the network of the node (`hostNetwork`) is ignored.
    pub(crate) fn put(&self, pod: &Pod) {
        self.table.send_if_modified(|table| {
            let shown = pod.metadata.uid.as_ref().and_then(|uid| table.pods.get(uid));
            let proofs = shown.map(|shown| shown.proofs.clone()).unwrap_or_default();
            let Some(entry) = PodEntry::of(pod, &self.acceptance, proofs) else { return false };
            let is_changed = table.pods.get(&entry.uid) != Some(&entry);
            table.pods.insert(entry.uid.clone(), entry);
            is_changed
        });
    }

    /// Removes a pod, and remembers its UID, so that a command for this UID fails at once.
    pub(crate) fn remove(&self, uid: &str) {
        self.table.send_modify(|table| {
            table.pods.remove(uid);
            table.deleted.push_back(uid.to_owned());
            if table.deleted.len() > MAX_REMEMBERED_DELETIONS {
                table.deleted.pop_front();
            }
        });
    }

    /// Returns `true` if the table has a pod with that UID.
    pub(crate) fn contains(&self, uid: &str) -> bool {
        self.table.borrow().pods.contains_key(uid)
    }

    /// Returns the number of commands that wait for a pod.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.table.receiver_count()
    }

    /// Returns the pod that a command is about; `None` if the table has no such pod, or several of that name and the command has no UID.
    pub(crate) fn get(&self, target: &PodTarget) -> Option<PodEntry> {
        self.table.borrow().get(target).cloned()
    }

    /// Waits until `is_ready` returns `true` for the pod of a command or the pod is deleted, but no longer than `limit`.
    pub(crate) async fn wait(
        &self,
        target: &PodTarget,
        limit: Duration,
        is_ready: impl Fn(&PodEntry) -> bool,
    ) -> Found {
        let mut changes = self.table.subscribe();
        let search = async {
            let is_decided =
                |table: &Table| table.get(target).map_or_else(|| table.is_deleted(target), &is_ready);
            let pod = changes.wait_for(is_decided).await.ok().and_then(|table| table.get(target).cloned());
            pod.map_or(Found::Gone, |pod| Found::Ready(Box::new(pod)))
        };
        timeout(limit, search).await.unwrap_or_else(|_| Found::NotYet(self.get(target).map(Box::new)))
    }
}

impl Table {
    /// Returns the pod that a command is about; `None` if there is no such pod, or several of that name and the command has no UID.
    fn get(&self, target: &PodTarget) -> Option<&PodEntry> {
        let is_meant = |pod: &&PodEntry| pod.namespace == target.namespace && pod.name == target.name;
        let mut meant = self.pods.values().filter(is_meant);
        match &target.uid {
            Some(uid) => meant.find(|pod| pod.uid == *uid || pod.mirror.as_ref() == Some(uid)),
            // A pod of the same name that is being replaced may still be there: then the UID decides, and there is none.
            None => meant.next().filter(|_| meant.next().is_none()),
        }
    }

    /// Returns `true` if the pod of the command is among the last deleted ones; always `false` if the command has no UID.
    fn is_deleted(&self, target: &PodTarget) -> bool {
        target.uid.as_ref().is_some_and(|uid| self.deleted.contains(uid))
    }
}

impl PodEntry {
    /// Reads the fields of a pod that has shown these proofs before; `None` if it uses the network of the node (`hostNetwork`).
    fn of(pod: &Pod, acceptance: &Acceptance, mut proofs: Proofs) -> Option<Self> {
        if pod.spec.as_ref().and_then(|spec| spec.host_network).unwrap_or_default() {
            return None;
        }
        let meta = &pod.metadata;
        let annotation = |key: &str| meta.annotations.as_ref().and_then(|annotations| annotations.get(key));
        let vifs = acceptance.vifs(meta, &mut proofs);
        Some(Self {
            uid: meta.uid.clone()?,
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            mirror: annotation(MIRROR_ANNOTATION).cloned(),
            vifs,
            proofs,
        })
    }

    /// Returns `true` if all VIFs of the pod are active.
    pub(crate) fn is_active(&self) -> bool {
        self.vifs.as_ref().is_ok_and(|state| state.vifs().all(|vif| vif.active))
    }
}
