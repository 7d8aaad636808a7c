//! What the other world and the pods tell of what exists.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Inner;
use super::figures::count;
use super::ports::sorted;
use super::state::{Phase, Place, State};
use super::work::Work;
use crate::error::DriverError;
use crate::id::VifId;
use crate::owner::{Marked, Owner};
use crate::stock::{StockKey, StockList, Stocked};
use crate::vif::Vif;
use crate::warm_pool::{Adopted, Epoch, Told};

/// What exists of one key.
#[derive(Default)]
struct Existing {
    told: BTreeMap<VifId, Told<Vec<crate::id::SecurityGroupId>>>,
    vifs: HashMap<VifId, Vif>,
}

impl Inner {
    /// Reads what exists, before the pool begins and afterwards.
    pub(super) async fn read(self: &Arc<Self>) -> Result<(), DriverError> {
        if matches!(self.state().phase, Phase::Open) {
            return self.resync().await;
        }
        let found = self.stock.list().await?;
        let mut state = self.state();
        if !matches!(state.phase, Phase::Open) {
            state.phase = Phase::Read(found);
        }
        Ok(())
    }

    pub(super) fn shows(&self, owner: &Owner, vifs: &[Vif]) {
        let mut state = self.state();
        for id in vifs.iter().map(|vif| &vif.id) {
            if state.shown(id, &owner.uid) {
                continue;
            }
            let hold = state.next_hold();
            state.hold(id, hold, &Arc::new(owner.clone()));
            state.shown(id, &owner.uid);
            if let Some(Place { key, .. }) = state.places.get(id).cloned() {
                self.adopt(&mut state, &key, id);
            }
        }
    }

    /// All that pods show is known. Answers whether that is news.
    pub(super) fn begin(self: &Arc<Self>) -> bool {
        let mut state = self.state();
        if !matches!(state.phase, Phase::Read(_)) {
            return false;
        }
        let Phase::Read(found) = std::mem::replace(&mut state.phase, Phase::Open) else { return false };
        let mut work = Vec::new();
        self.take_in(&mut state, found, &BTreeMap::new(), &mut work);
        drop(state);
        self.start(work);
        true
    }

    /// Takes in what exists, and forgets what does not.
    pub(super) async fn resync(self: &Arc<Self>) -> Result<(), DriverError> {
        let epochs: BTreeMap<_, _> =
            self.state().shelves.iter().map(|(key, shelf)| (Arc::clone(key), shelf.pool.epoch())).collect();
        let found = self.stock.list().await?;
        let mut work = Vec::new();
        let mut state = self.state();
        self.take_in(&mut state, found, &epochs, &mut work);
        drop(state);
        self.start(work);
        Ok(())
    }

    /// Something may exist of which nobody knows, or not exist any more: what exists is read at once.
    pub(super) fn suspect(&self) {
        self.doubt.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    fn take_in(
        self: &Arc<Self>,
        state: &mut State,
        found: StockList,
        epochs: &BTreeMap<Arc<StockKey>, Epoch>,
        work: &mut Vec<Work>,
    ) {
        let StockList { mut whole, halves } = found;
        whole.extend(sort_out(state, halves, work));
        let mut by_key: BTreeMap<Arc<StockKey>, Existing> =
            epochs.keys().map(|key| (Arc::clone(key), Existing::default())).collect();
        for Stocked { key, security_groups, vif } in whole {
            let existing = by_key.entry(Arc::new(key)).or_default();
            let (tag, ready) = (sorted(&security_groups), self.in_stock(vif.clone()).active);
            existing.told.insert(vif.id.clone(), Told { tag, ready });
            existing.vifs.insert(vif.id.clone(), vif);
        }
        for (key, existing) in by_key {
            // What began only after the reading did is left to the next one.
            if state.shelves.contains_key(&key) && !epochs.contains_key(&key) {
                continue;
            }
            self.compare(state, &key, epochs.get(&key).copied(), existing, work);
            self.turn(state, &key, work);
        }
    }

    fn compare(
        &self,
        state: &mut State,
        key: &Arc<StockKey>,
        epoch: Option<Epoch>,
        mut existing: Existing,
        work: &mut Vec<Work>,
    ) {
        let now = self.now();
        let shelf = state.shelf(key, self.policy.sizes(), self.policy.cool_down);
        let epoch = epoch.unwrap_or_else(|| shelf.pool.epoch());
        let drift = shelf.pool.resync(epoch, &existing.told, now);
        for (id, vif) in &existing.vifs {
            if let Some(known) = shelf.vifs.get_mut(id) {
                *known = self.in_stock(vif.clone());
            }
        }
        for (id, vif) in &existing.vifs {
            // What a pod was handed is compared with what it gives back.
            let free = !state.holders.contains_key(id);
            if let Some(place) = state.places.get_mut(id).filter(|place| free || place.is_of(vif)) {
                place.told = Arc::new(vif.clone());
            }
        }
        for (id, _) in drift.bereft {
            count(&self.counters.conflicts);
            tracing::warn!(host = key.host, vif = %id, "a pod uses a VIF that does not exist any more");
        }
        for id in drift.lost {
            state.lose(key, &id);
        }
        for id in drift.found {
            let Some(vif) = existing.vifs.remove(&id) else { continue };
            let place = Place { key: Arc::clone(key), told: Arc::new(vif.clone()) };
            state.places.insert(id.clone(), place);
            let vif = self.in_stock(vif);
            if !vif.active && self.stock.is_active_unbound(&vif) {
                work.push(Work::Activate { key: Arc::clone(key), vif: vif.clone() });
            }
            if let Some(shelf) = state.shelves.get_mut(key) {
                shelf.vifs.insert(id.clone(), vif);
            }
            self.adopt(state, key, &id);
        }
    }

    /// Lets those have the VIF who show it.
    fn adopt(&self, state: &mut State, key: &Arc<StockKey>, id: &VifId) {
        let holders = state.holders.get(id).cloned().unwrap_or_default();
        let Some(shelf) = state.shelves.get_mut(key) else { return };
        for holder in holders {
            match shelf.pool.adopt(&holder.hold, id) {
                Adopted::Held => drop(shelf.vifs.remove(id)),
                Adopted::Shared(_) => {
                    count(&self.counters.conflicts);
                    let Owner { namespace, name, uid } = &*holder.owner;
                    tracing::warn!(namespace, name, %uid, vif = %id, "two pods use the same VIF; it is handed out no more \
                        until none does");
                }
                Adopted::Unknown => {}
            }
        }
    }

    /// What `owner` holds: of the pool, as it was told last, and of the VIF driver.
    pub(super) async fn vifs_of(&self, owner: &Owner) -> Result<Vec<Marked<Vif>>, DriverError> {
        let mut marked = self.vifs.vifs(Some(owner)).await?;
        let mut state = self.state();
        for id in state.by_owner.get(&owner.uid).cloned().unwrap_or_default() {
            if let Some(Place { told, .. }) = state.places.get(&id) {
                marked.push(Marked { owner: Some(owner.clone()), thing: Vif::clone(told) });
            } else {
                state.let_go(&id, &owner.uid);
            }
        }
        Ok(marked)
    }

    /// All that carries the mark of the cluster; what is out of the pool with who holds it.
    pub(super) async fn all_vifs(&self) -> Result<Vec<Marked<Vif>>, DriverError> {
        let mut marked = self.vifs.vifs(None).await?;
        let state = self.state();
        if matches!(state.phase, Phase::Open) {
            for Marked { owner, thing } in marked.iter_mut().filter(|marked| marked.owner.is_none()) {
                let holder = state.holders.get(&thing.id).and_then(|holders| holders.first());
                *owner = holder.map(|holder| Owner::clone(&holder.owner));
            }
        }
        Ok(marked)
    }
}

/// What becomes of what is half made. A pod keeps what it holds, as if it were whole. What was whole once and is held by
/// nobody is forgotten, for it is not to be handed out; should it be whole again at the next reading, it is found. What nobody
/// ever knew was left behind, and is destroyed.
fn sort_out(state: &State, halves: Vec<Stocked>, work: &mut Vec<Work>) -> Vec<Stocked> {
    let held = |half: &Stocked| state.holders.contains_key(&half.vif.id);
    let (kept, mut left): (Vec<_>, Vec<_>) = halves.into_iter().partition(held);
    left.retain(|half| !state.places.contains_key(&half.vif.id));
    if !left.is_empty() {
        work.push(Work::Clear(left.into_iter().map(|half| half.vif).collect()));
    }
    kept
}
