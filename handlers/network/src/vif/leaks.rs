//! Garbage collection of VIFs. It also releases leaked VIFs, which a call that timed out created,
//! and which the annotation of their living pod does not list.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use staffetta_driver::{Owned, Owner, Uid, Vif, VifId};
use staffetta_handler::{
    GarbageCollector, HandlerError, Identity, Source, Trigger, TriggerHandler, TriggerSender,
};
use tokio::sync::Notify;
use tracing::warn;

use super::decide::VifRecord;
use super::{VifClaims, VifError, VifHandler};
use crate::owners::{identities, identity};
use crate::step_error::{StepContext, StepError};

/// A trigger for a living pod that has VIFs which it does not publish, according to two consecutive
/// scans.
#[derive(Clone, Debug)]
pub struct VifsLeaked(Identity);

impl Trigger for VifsLeaked {
    fn identity(&self) -> &Identity {
        &self.0
    }
}

/// Finds leaked VIFs by comparing the ownership marks of all VIFs with the published VIFs.
///
/// A single scan may be wrong, because ownership marks and events are not read at the same time. If
/// two consecutive scans find the same leaked VIF, the VIF is released in the pod's own queue, where
/// no other event of the pod is handled concurrently.
pub(super) struct LeakDetector {
    /// The VIFs that each pod publishes: those that its annotation lists.
    claims: Arc<VifClaims>,
    /// The result of the last scan.
    scan: Mutex<LeakScan>,
    /// Wakes the [`LeakSource`] when a scan has confirmed leaks.
    found: Notify,
}

/// The result of the last scan for leaked VIFs.
#[derive(Default)]
struct LeakScan {
    /// The leaked VIFs according to the last scan.
    suspected: HashSet<VifId>,
    /// The leaked VIFs according to both of the last two scans, by the UID of their pod.
    confirmed: HashMap<Uid, (Owner, Vec<Vif>)>,
}

impl LeakDetector {
    /// Creates the detector, before its first scan.
    pub(super) fn new(claims: Arc<VifClaims>) -> Self {
        Self { claims, scan: Mutex::default(), found: Notify::new() }
    }

    /// Scans `marks`, the list of all VIFs with an ownership mark, for leaked VIFs: those that their
    /// pod does not publish. A leaked VIF is suspected after one call, and confirmed after two
    /// consecutive calls.
    ///
    /// Skips a pod whose published VIFs are unknown. Also skips a pod if `has_record` returns `true`
    /// for its UID: the handler then has a [`VifRecord`] of the pod, because the annotation does not show
    /// the state of its VIFs yet.
    fn evaluate(&self, marks: &[Owned<Vif>], has_record: impl Fn(&Uid) -> bool) {
        let mut scan = self.scan();
        let mut next = LeakScan::default();
        for Owned { owner, resource } in marks {
            let Some(owner) = owner else { continue };
            if has_record(&owner.uid) || !self.claims.is_known_unpublished(&owner.uid, resource) {
                continue;
            }
            if scan.suspected.contains(&resource.id) {
                let (_, vifs) =
                    next.confirmed.entry(owner.uid.clone()).or_insert((owner.clone(), Vec::new()));
                vifs.push(resource.clone());
            }
            next.suspected.insert(resource.id.clone());
        }
        *scan = next;
        if !scan.confirmed.is_empty() {
            self.found.notify_one();
        }
    }

    /// Returns the pod with this UID and those of its confirmed leaked VIFs that are still not
    /// published. Returns `None` if the pod has no confirmed leaks.
    fn leaks_of(&self, uid: &Uid) -> Option<(Owner, Vec<Vif>)> {
        let (owner, mut vifs) = self.scan().confirmed.get(uid).cloned()?;
        vifs.retain(|vif| self.claims.is_known_unpublished(uid, vif));
        Some((owner, vifs))
    }

    /// Returns a trigger for each pod with confirmed leaks.
    pub(super) fn triggers(&self) -> Vec<VifsLeaked> {
        let scan = self.scan();
        scan.confirmed.values().map(|(owner, _)| VifsLeaked(identity::<Pod>(owner.clone()))).collect()
    }

    /// Locks the result of the last scan.
    fn scan(&self) -> MutexGuard<'_, LeakScan> {
        self.scan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A source that sends a trigger for each pod with leaked VIFs.
pub(super) struct LeakSource(pub(super) Arc<LeakDetector>);

#[async_trait]
impl Source for LeakSource {
    async fn run(&self, sender: TriggerSender) -> Result<(), HandlerError> {
        loop {
            self.0.found.notified().await;
            for trigger in self.0.triggers() {
                sender.send(trigger);
            }
        }
    }
}

impl TriggerHandler<VifsLeaked> for VifHandler {
    type Error = VifError;

    async fn on_trigger(&self, trigger: &VifsLeaked) -> Result<(), VifError> {
        let uid: Uid = trigger.identity().uid.as_str().into();
        let Some((owner, leaks)) = self.leaks.leaks_of(&uid) else { return Ok(()) };
        // A pod with a record is taken care of by its own events.
        if leaks.is_empty() || self.records.contains(&uid) {
            return Ok(());
        }
        let Owner { namespace, name, .. } = &owner;
        warn!(namespace, name, %uid, count = leaks.len(), "releasing leaked VIFs: the pod does not publish them");
        Ok(self.release(&owner, &leaks).await?)
    }
}

impl VifHandler {
    /// Lists the VIFs with the ownership mark of `owner`. If `owner` is `None`, lists all VIFs with
    /// the ownership mark of this cluster; a VIF pool then also compares its state with the list.
    pub(super) async fn marks(&self, owner: Option<&Owner>) -> Result<Vec<Owned<Vif>>, StepError> {
        match self.drivers.pool.observer() {
            Some(observer) if owner.is_none() => observer.resync().await,
            _ => self.drivers.pool.vifs(owner).await,
        }
        .step("list the existing VIFs")
    }
}

#[async_trait]
impl GarbageCollector for VifHandler {
    async fn recover(&self) -> Result<(), HandlerError> {
        let mut marks = self.marks(None).await?;
        marks.extend(self.drivers.pool.unmarked_vifs().await.step("list the VIFs of another controller")?);
        self.claims.recover(&marks);
        let mut marked: HashMap<Uid, Vec<Vif>> = HashMap::new();
        for Owned { owner, resource } in marks {
            if let Some(owner) = owner {
                marked.entry(owner.uid).or_default().push(resource);
            }
        }
        self.records.replace_all(marked.into_iter().map(|(uid, vifs)| (uid, VifRecord::Owned(vifs))));
        Ok(())
    }

    async fn owners(&self) -> Result<Vec<Identity>, HandlerError> {
        if let Some(observer) = self.drivers.pool.observer() {
            observer.start();
        }
        let marks = self.marks(None).await?;
        self.leaks.evaluate(&marks, |uid| self.records.contains(uid));
        Ok(identities::<Pod>(marks.into_iter().filter_map(|marked| marked.owner)))
    }
}
