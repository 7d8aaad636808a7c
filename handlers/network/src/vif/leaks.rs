//! Garbage collection of VIFs, including leaked ones: created by calls that timed out, missing from
//! their living pod's annotation.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use dashmap::DashMap;
use k8s_openapi::api::core::v1::Pod;
use staffetta_driver::{Owned, Owner, Uid, Vif, VifId};
use staffetta_handler::{
    GarbageCollector, HandlerError, Identity, Source, Trigger, TriggerHandler, TriggerSender,
};
use tokio::sync::Notify;
use tracing::warn;

use super::decide::VifRecord;
use super::{VifError, VifHandler};
use crate::owners::{identities, identity};
use crate::step_error::{StepContext, StepError};

/// Trigger: a living pod has VIFs that it does not publish, as two consecutive scans have found.
#[derive(Clone, Debug)]
pub struct VifsLeaked(Identity);

impl Trigger for VifsLeaked {
    fn identity(&self) -> &Identity {
        &self.0
    }
}

/// Compares the ownership marks with the published VIFs.
///
/// A single scan may be wrong, because marks and events are not read at the same time. A leak that
/// two scans have found is released in the pod's own queue, where nothing else happens to the pod
/// at the same time.
#[derive(Default)]
pub(super) struct LeakDetector {
    /// The published VIFs of each pod, as of its last handled event.
    published: DashMap<Uid, Vec<VifId>>,
    scan: Mutex<LeakScan>,
    found: Notify,
}

/// The result of the last scan.
#[derive(Default)]
struct LeakScan {
    /// Leaks found by the last scan.
    suspected: HashSet<VifId>,
    /// Leaks found by the last two scans, by pod.
    confirmed: HashMap<Uid, (Owner, Vec<Vif>)>,
}

impl LeakDetector {
    /// Sets the published VIFs of a pod.
    pub(super) fn set_published(&self, uid: &Uid, vifs: &[Vif]) {
        self.published.insert(uid.clone(), vifs.iter().map(|vif| vif.id.clone()).collect());
    }

    /// Forgets a deleted pod.
    pub(super) fn forget(&self, uid: &Uid) {
        self.published.remove(uid);
    }

    /// Evaluates a list of all marks. Pods for which `has_record` is `true`, or whose published
    /// VIFs are unknown, have no leaks.
    fn evaluate(&self, marks: &[Owned<Vif>], has_record: impl Fn(&Uid) -> bool) {
        let mut scan = self.scan();
        let mut next = LeakScan::default();
        for Owned { owner, thing } in marks {
            let Some(owner) = owner else { continue };
            if has_record(&owner.uid) || !self.is_leaked(&owner.uid, thing) {
                continue;
            }
            if scan.suspected.contains(&thing.id) {
                let (_, vifs) =
                    next.confirmed.entry(owner.uid.clone()).or_insert((owner.clone(), Vec::new()));
                vifs.push(thing.clone());
            }
            next.suspected.insert(thing.id.clone());
        }
        *scan = next;
        if !scan.confirmed.is_empty() {
            self.found.notify_one();
        }
    }

    /// The confirmed leaks of a pod that are still not published.
    fn leaks_of(&self, uid: &Uid) -> Option<(Owner, Vec<Vif>)> {
        let (owner, mut vifs) = self.scan().confirmed.get(uid).cloned()?;
        vifs.retain(|vif| self.is_leaked(uid, vif));
        Some((owner, vifs))
    }

    /// A trigger for each pod with confirmed leaks.
    pub(super) fn triggers(&self) -> Vec<VifsLeaked> {
        let scan = self.scan();
        scan.confirmed.values().map(|(owner, _)| VifsLeaked(identity::<Pod>(owner.clone()))).collect()
    }

    /// Returns `true` if the pod's published VIFs are known and `vif` is not one of them.
    fn is_leaked(&self, uid: &Uid, vif: &Vif) -> bool {
        self.published.get(uid).is_some_and(|published| !published.contains(&vif.id))
    }

    fn scan(&self) -> MutexGuard<'_, LeakScan> {
        self.scan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends a trigger for each pod with leaked VIFs.
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
    /// Lists the VIFs with the pod's ownership mark, or all marked ones.
    pub(super) async fn marks(&self, owner: Option<&Owner>) -> Result<Vec<Owned<Vif>>, StepError> {
        self.drivers.pool.vifs(owner).await.step("list the existing VIFs")
    }

    /// Has the pool, if it keeps a ledger, read its resources.
    async fn read_ledger(&self) -> Result<(), StepError> {
        match self.drivers.pool.observer() {
            Some(observer) => observer.resync().await.step("list the existing VIFs"),
            None => Ok(()),
        }
    }
}

#[async_trait]
impl GarbageCollector for VifHandler {
    async fn recover(&self) -> Result<(), HandlerError> {
        self.read_ledger().await?;
        let mut marked: HashMap<Uid, Vec<Vif>> = HashMap::new();
        for Owned { owner, thing } in self.marks(None).await? {
            if let Some(owner) = owner {
                marked.entry(owner.uid).or_default().push(thing);
            }
        }
        self.records.replace_all(marked.into_iter().map(|(uid, vifs)| (uid, VifRecord::Owned(vifs))));
        Ok(())
    }

    async fn owners(&self) -> Result<Vec<Identity>, HandlerError> {
        if let Some(observer) = self.drivers.pool.observer() {
            observer.start();
        }
        self.read_ledger().await?;
        let marks = self.marks(None).await?;
        self.leaks.evaluate(&marks, |uid| self.records.contains(uid));
        Ok(identities::<Pod>(marks.into_iter().filter_map(|marked| marked.owner)))
    }
}
