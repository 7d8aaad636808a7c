//! Garbage collection of VIFs. It also releases leaked VIFs, which a call that timed out created,
//! and which the annotation of their living pod does not list.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use staffetta_driver::{Owned, Owner, Uid, Vif, VifId};
use staffetta_handler::{
    Action, GarbageCollector, HandlerError, Identity, Source, Trigger, TriggerHandler, TriggerSender,
};
use tokio::sync::watch;
use tracing::warn;

use super::decide::VifRecord;
use super::{VifClaims, VifError, VifHandler};
use crate::owners::{identities, identity};
use crate::step_error::{StepContext, StepError};

/// A trigger for a living pod that owns VIFs which its annotation does not list, according to two
/// consecutive scans.
#[derive(Clone, Debug)]
pub struct VifsLeaked {
    identity: Identity,
    /// The pod, as the ownership marks of its VIFs name it.
    owner: Owner,
    /// The leaked VIFs of the pod.
    vifs: Vec<Vif>,
}

impl VifsLeaked {
    /// Creates the trigger for the pod `owner`, at first without leaked VIFs.
    fn of(owner: &Owner) -> Self {
        Self { identity: identity::<Pod>(owner.clone()), owner: owner.clone(), vifs: Vec::new() }
    }
}

impl Trigger for VifsLeaked {
    fn identity(&self) -> &Identity {
        &self.identity
    }
}

/// The detector of leaked VIFs, which compares the ownership marks of all VIFs with the published VIFs.
///
/// A single scan may be wrong, because ownership marks and events are not read at the same time. If
/// two consecutive scans find the same leaked VIF, the VIF is released in the pod's own queue, where
/// no other event of the pod is handled concurrently.
pub(super) struct LeakDetector {
    /// The store of the VIFs that each pod publishes: those that its annotation lists.
    claims: Arc<VifClaims>,
    /// The leaked VIFs according to the last scan.
    suspected: Mutex<HashSet<VifId>>,
    /// The leaked VIFs according to both of the last two scans.
    confirmed: watch::Sender<Vec<VifsLeaked>>,
}

impl LeakDetector {
    /// Creates the detector, which suspects no VIF before its first scan.
    pub(super) fn new(claims: Arc<VifClaims>) -> Self {
        Self { claims, suspected: Mutex::default(), confirmed: watch::Sender::default() }
    }

    /// Scans `marks`, the list of all VIFs with an ownership mark, for leaked VIFs: those that their
    /// pod does not publish. A leaked VIF is suspected after one call, and confirmed after two
    /// consecutive calls.
    ///
    /// Skips a pod whose published VIFs are unknown. Also skips a pod if `has_record` returns `true`
    /// for its UID: the handler then has a [`VifRecord`] of the pod, because the annotation does not show
    /// the state of its VIFs yet.
    fn evaluate(&self, marks: &[Owned<Vif>], has_record: impl Fn(&Uid) -> bool) {
        let mut suspected = self.suspected.lock();
        let (mut next, mut confirmed) = (HashSet::new(), HashMap::new());
        for Owned { owner, resource } in marks {
            let Some(owner) = owner else { continue };
            if has_record(&owner.uid) || !self.claims.is_known_unpublished(&owner.uid, resource) {
                continue;
            }
            if suspected.contains(&resource.id) {
                let leaks = confirmed.entry(&owner.uid).or_insert_with(|| VifsLeaked::of(owner));
                leaks.vifs.push(resource.clone());
            }
            next.insert(resource.id.clone());
        }
        *suspected = next;
        self.confirmed.send_replace(confirmed.into_values().collect());
    }

    /// Returns a trigger for each pod with VIFs that both of the last two scans found to be leaked.
    pub(super) fn triggers(&self) -> Vec<VifsLeaked> {
        self.confirmed.borrow().clone()
    }
}

/// A source that sends a trigger for each pod with leaked VIFs.
pub(super) struct LeakSource(pub(super) Arc<LeakDetector>);

#[async_trait]
impl Source for LeakSource {
    async fn run(&self, sender: TriggerSender) -> Result<(), HandlerError> {
        let mut confirmed = self.0.confirmed.subscribe();
        // What was confirmed before is sent, too.
        confirmed.mark_changed();
        while confirmed.changed().await.is_ok() {
            for trigger in self.0.triggers() {
                sender.send(trigger);
            }
        }
        Ok(())
    }
}

impl TriggerHandler<VifsLeaked> for VifHandler {
    type Error = VifError;

    async fn on_trigger(&self, trigger: &VifsLeaked) -> Result<Action, VifError> {
        let VifsLeaked { owner, vifs, .. } = trigger;
        let mut leaks = vifs.clone();
        leaks.retain(|vif| self.claims.is_known_unpublished(&owner.uid, vif));
        // A pod with a record is taken care of by its own events.
        if leaks.is_empty() || self.records.contains(&owner.uid) {
            return Ok(Action::done());
        }
        let Owner { namespace, name, uid } = owner;
        warn!(namespace, name, %uid, count = leaks.len(), "releasing leaked VIFs: the pod does not publish them");
        self.release(owner, &leaks).await?;
        Ok(Action::done())
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
