//! VIFs of a living pod that it does not show: calls made them that took effect after everybody had given them up.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dashmap::DashMap;
use k8s_openapi::api::core::v1::Pod;
use staffetta_driver::{Marked, Owner, Uid, Vif, VifId};
use staffetta_handler::{HandlerError, Identity, Outlet, Signal, Source};
use tokio::sync::Notify;

/// A living pod has VIFs that it does not show, as two sweeps in a row found.
#[derive(Clone, Debug)]
pub struct Strayed(Identity);

impl Signal for Strayed {
    fn identity(&self) -> &Identity {
        &self.0
    }
}

/// What pods show, and what two sweeps found beside that.
///
/// One sweep may be wrong: what it read is not what the pod shows by then. What two found is told in the pod's own queue, where
/// nothing else happens to the pod at the same time.
#[derive(Default)]
pub(super) struct Strays {
    /// What each pod shows, as the last event that was handled had it.
    shown: DashMap<Uid, Vec<VifId>>,
    found: Mutex<Found>,
    news: Notify,
}

#[derive(Default)]
struct Found {
    /// By the last sweep.
    once: HashSet<VifId>,
    /// By the last sweep and the one before.
    twice: HashMap<Uid, (Owner, Vec<Vif>)>,
}

impl Strays {
    /// The pod shows these.
    pub(super) fn show(&self, uid: &Uid, vifs: &[Vif]) {
        self.shown.insert(uid.clone(), vifs.iter().map(|vif| vif.id.clone()).collect());
    }

    /// The pod is gone.
    pub(super) fn forget(&self, uid: &Uid) {
        self.shown.remove(uid);
    }

    /// A sweep read these marks. Of a pod that is `claimed`, or of which nobody knows what it shows, nothing strays.
    pub(super) fn look(&self, marks: &[Marked<Vif>], claimed: impl Fn(&Uid) -> bool) {
        let mut found = self.found();
        let mut now = Found::default();
        for Marked { owner, thing } in marks {
            let Some(owner) = owner.as_ref().filter(|owner| !claimed(&owner.uid) && self.hides(owner, thing))
            else {
                continue;
            };
            if found.once.contains(&thing.id) {
                let (_, vifs) = now.twice.entry(owner.uid.clone()).or_insert((owner.clone(), Vec::new()));
                vifs.push(thing.clone());
            }
            now.once.insert(thing.id.clone());
        }
        *found = now;
        if !found.twice.is_empty() {
            self.news.notify_one();
        }
    }

    /// What strays of the pod.
    pub(super) fn of(&self, uid: &Uid) -> Option<(Owner, Vec<Vif>)> {
        let (owner, mut vifs) = self.found().twice.get(uid).cloned()?;
        vifs.retain(|vif| self.hides(&owner, vif));
        Some((owner, vifs))
    }

    /// The pods of which something strays.
    pub(super) fn told(&self) -> Vec<Strayed> {
        let of = |owner: &Owner| {
            let Owner { namespace, name, uid } = owner.clone();
            Strayed(Identity::of::<Pod>(Some(namespace), name, uid.to_string()))
        };
        self.found().twice.values().map(|(owner, _)| of(owner)).collect()
    }

    /// Whether it is known what the pod shows, and this VIF is not among it.
    fn hides(&self, owner: &Owner, vif: &Vif) -> bool {
        self.shown.get(&owner.uid).is_some_and(|shown| !shown.contains(&vif.id))
    }

    fn found(&self) -> MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells of what strays.
pub(super) struct StrayNews(pub(super) Arc<Strays>);

impl Source for StrayNews {
    async fn run(&self, outlet: Outlet) -> Result<(), HandlerError> {
        loop {
            self.0.news.notified().await;
            for strayed in self.0.told() {
                outlet.signal(strayed);
            }
        }
    }
}
