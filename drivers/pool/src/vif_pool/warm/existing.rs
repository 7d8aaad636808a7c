//! Compares the warm VIF pool with the VIFs that exist in the cloud, and with the pods that use them.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use staffetta_driver::{
    DriverError, NodeInfo, Owned, Owner, PooledVif, PooledVifList, Uid, Vif, VifId, VifPoolKey,
    VifPoolObserver, addresses_of,
};

use super::state::{KeyPool, Place, StartupPhase, VifPoolState, sorted};
use super::{Inner, WarmVifPool};
use crate::pool::{Adopted, Epoch, Existing};

#[async_trait]
impl VifPoolObserver for WarmVifPool {
    async fn resync(&self) -> Result<Vec<Owned<Vif>>, DriverError> {
        self.inner.resync().await
    }

    fn pod_vifs(&self, pod: &Pod, vifs: Option<&[Vif]>) {
        let (mut state, uid) = (self.inner.state.lock(), Owner::of(&pod.metadata).uid);
        let mut new: Vec<_> = vifs.unwrap_or_default().iter().collect();
        new.retain(|vif| state.record_annotation(pod, vif));
        let mut held: Vec<_> = new.into_iter().map(|vif| vif.id.clone()).collect();
        let is_new = state.record_pod(pod, vifs.is_none());
        // Before the start, it is not known which VIFs exist.
        if is_new && matches!(state.phase, StartupPhase::Open) {
            held.extend(state.record_unnamed(Some(&uid), true));
        }
        self.inner.adopt_all(&mut state, held);
        if !addresses_of(pod).is_empty() {
            self.inner.end_possible(&mut state, &uid);
        }
    }

    fn pod_ended(&self, pod: &Uid) {
        let mut state = self.inner.state.lock();
        state.pods.remove(pod);
        self.inner.end_possible(&mut state, pod);
    }

    /// Starts to hand out VIFs, because all pods that use VIFs are known now. Does nothing if the pool was started before, or if
    /// the existing VIFs have not been listed yet.
    fn start(&self) {
        let mut state = self.inner.state.lock();
        if let StartupPhase::Listed(found) = &mut state.phase {
            let found = std::mem::take(found);
            state.phase = StartupPhase::Open;
            self.inner.compare_all(&mut state, found, None, &BTreeMap::new(), Duration::ZERO);
            let background = tokio::spawn(Arc::clone(&self.inner).run());
            drop(self.background.set(background.abort_handle()));
        }
    }

    fn node_changed(&self, name: &str, facts: Option<&NodeInfo>) {
        self.inner.nodes.update(name, facts);
    }
}

impl Inner {
    /// Lists the existing VIFs. Before the [start](VifPoolObserver::start) of the pool, the list is stored until then; afterwards
    /// the pool is compared with the list at once. Returns the VIFs that have an owner according to their ownership mark or, after
    /// the start, to the pool.
    pub(super) async fn resync(self: &Arc<Self>) -> Result<Vec<Owned<Vif>>, DriverError> {
        let epoch = |(key, pool): (&Arc<_>, &KeyPool)| (Arc::clone(key), pool.warm.epoch());
        let (epochs, began) = (self.state.lock().pools.iter().map(epoch).collect(), self.now());
        let (found, published) = tokio::join!(self.bulk.list_vifs(), self.read_published(began));
        let mut found = found?;
        let mut owned = std::mem::take(&mut found.owned);
        let mut state = self.state.lock();
        if matches!(state.phase, StartupPhase::Open) {
            let pooled = found.usable.iter().chain(&found.incomplete);
            owned.extend(pooled.filter_map(|PooledVif { vif, .. }| {
                let owner = Some(state.holder(&vif.id)?.clone());
                Some(Owned { owner, resource: vif.clone() })
            }));
            self.compare_all(&mut state, found, published.as_ref(), &epochs, began);
        } else {
            state.phase = StartupPhase::Listed(found);
        }
        Ok(owned)
    }

    /// Reads the VIFs in the annotations of pods, if a listing that `began` then may confirm VIFs that an earlier one has found. Returns
    /// `None` otherwise, and if that fails.
    async fn read_published(&self, began: Duration) -> Option<HashSet<VifId>> {
        self.confirm_at().filter(|at| *at <= began)?;
        let published = self.published.published_vifs().await;
        let failed = |error: &DriverError| {
            tracing::warn!(error = %error, "the annotations of pods cannot be read; VIFs that were found wait for that");
        };
        published.inspect_err(failed).ok()
    }

    /// Asks the background task to list the existing VIFs, because the pool may differ from them.
    pub(super) fn request_listing(&self) {
        self.state.lock().needs_listing = true;
        self.wake.notify_one();
    }

    /// Corrects the pools of all keys according to a listing of the existing VIFs, as [`compare`](Self::compare) does for one key. `epochs`
    /// are the states of the pools when the listing `began`; a pool that was created later is left to the next listing. `published` are the
    /// VIFs in the annotations of pods since then; `None` if they are not known.
    fn compare_all(
        self: &Arc<Self>,
        state: &mut VifPoolState,
        found: PooledVifList,
        published: Option<&HashSet<VifId>>,
        epochs: &BTreeMap<Arc<VifPoolKey>, Epoch>,
        began: Duration,
    ) {
        let PooledVifList { mut usable, incomplete, .. } = found;
        usable.extend(self.split_incomplete(state, incomplete));
        let mut by_key: BTreeMap<Arc<VifPoolKey>, Vec<PooledVif>> =
            epochs.keys().map(|key| (Arc::clone(key), Vec::new())).collect();
        for pooled in usable {
            by_key.entry(Arc::new(pooled.key.clone())).or_default().push(pooled);
        }
        let now = self.now();
        for (key, pooled) in by_key {
            // A key whose pool is younger than the listing is left to the next one.
            if state.pools.contains_key(&key) && !epochs.contains_key(&key) {
                continue;
            }
            self.compare(state, &key, epochs.get(&key).copied(), pooled, published, (began, now));
        }
        let held = state.record_unnamed(None, !began.is_zero());
        self.adopt_all(state, held);
        // The background task makes the listing that confirms what this one has found.
        self.wake.notify_one();
        let keys: Vec<_> = state.pools.keys().cloned().collect();
        for key in keys {
            self.reconcile(state, &key);
        }
    }

    /// Marks these VIFs as used in their pools by the pods that hold them.
    fn adopt_all(&self, state: &mut VifPoolState, held: Vec<VifId>) {
        for id in held {
            if let Some(Place { key, .. }) = state.places.get(&id).cloned() {
                self.adopt(state, &key, &id);
            }
        }
    }

    /// Ends the holds of a pod that were only possible: the VIFs are free after their cool-down.
    fn end_possible(self: &Arc<Self>, state: &mut VifPoolState, uid: &Uid) {
        for (hold, id) in state.end_possible(uid) {
            let Some(Place { key, .. }) = state.places.get(&id).cloned() else { continue };
            if let Some(pool) = state.pools.get_mut(&key) {
                pool.warm.give_back(&hold, &id, self.now());
                // Another pod may have got it from the process that led before.
                pool.warm.mark_unconfirmed(&id);
            }
            self.reconcile(state, &key);
            // The background task makes the listing that confirms it.
            self.wake.notify_one();
        }
    }

    /// Corrects the pool of one key according to the VIFs of a listing: adds those that it lacks, if no VIF of the pool has changed since
    /// `epoch`, and removes those that do not exist any more. `epoch` is the state of the pool at the beginning of the listing; `None`
    /// stands for its current state. Confirms VIFs that an earlier listing has found, unless they are `published`.
    fn compare(
        self: &Arc<Self>,
        state: &mut VifPoolState,
        key: &Arc<VifPoolKey>,
        epoch: Option<Epoch>,
        pooled: Vec<PooledVif>,
        published: Option<&HashSet<VifId>>,
        (began, now): (Duration, Duration),
    ) {
        let (mut existing, mut vifs) = (BTreeMap::new(), BTreeMap::new());
        for PooledVif { security_groups, vif, .. } in pooled {
            let (config, ready) = (sorted(&security_groups), self.as_unbound(&vif).active);
            existing.insert(vif.id.clone(), Existing { config, ready });
            vifs.insert(vif.id.clone(), Arc::new(vif));
        }
        let pool = state.pool(key, &self.policy);
        match published {
            Some(published) => {
                pool.warm.confirm(began, now, |id| vifs.contains_key(id) && !published.contains(id));
            }
            None => pool.warm.postpone(began, now),
        }
        let epoch = epoch.unwrap_or_else(|| pool.warm.epoch());
        let drift = pool.warm.resync(epoch, &existing, now);
        for (id, vif) in &vifs {
            // A VIF that a pod uses is compared with the one that the pod returns.
            let free = !state.holders.contains_key(id);
            if let Some(place) = state.places.get_mut(id).filter(|place| free || place.is_of(vif)) {
                place.vif = Arc::clone(vif);
            }
        }
        for (id, _) in drift.lost_in_use {
            self.count(|counters| counters.conflicts += 1);
            tracing::warn!(host = key.host, vif = %id, "a pod uses a VIF that does not exist any more");
        }
        for id in drift.lost {
            state.lose(key, &id);
        }
        for id in drift.found {
            let Some(vif) = vifs.remove(&id) else { continue };
            let place = Place { key: Arc::clone(key), vif };
            if let Some(pool) = state.pools.get_mut(key) {
                self.prepare(pool, &place);
            }
            state.places.insert(id.clone(), place);
            self.adopt(state, key, &id);
        }
    }

    /// Marks the VIF as used in the pool by the pods that hold it. Counts a conflict if several pods hold it.
    fn adopt(&self, state: &mut VifPoolState, key: &Arc<VifPoolKey>, id: &VifId) {
        let Some(pool) = state.pools.get_mut(key) else { return };
        for holder in state.holders.get(id).into_iter().flatten() {
            if let Adopted::Shared(_) = pool.warm.adopt(&holder.hold, id) {
                self.count(|counters| counters.conflicts += 1);
                let Owner { namespace, name, uid } = &*holder.owner;
                tracing::warn!(namespace, name, %uid, vif = %id, "two pods use the same VIF; it is not handed out again before \
                    both have returned it");
            }
        }
    }

    /// Separates the incomplete VIFs of a listing. Returns those that pods hold, which are treated as usable. Other incomplete VIFs that
    /// belong to the pool are omitted, so that they are removed from it; if such a VIF is usable in the next listing, it is added again.
    /// All others were left behind by interrupted calls, and are deleted.
    fn split_incomplete(
        self: &Arc<Self>,
        state: &VifPoolState,
        incomplete: Vec<PooledVif>,
    ) -> Vec<PooledVif> {
        let (held, mut left): (Vec<_>, Vec<_>) =
            incomplete.into_iter().partition(|PooledVif { key, vif, .. }| state.is_needed(key, vif));
        left.retain(|pooled| !state.places.contains_key(&pooled.vif.id));
        if !left.is_empty() {
            tokio::spawn(
                Arc::clone(self).delete_leftovers(left.into_iter().map(|pooled| pooled.vif).collect()),
            );
        }
        held
    }
}
