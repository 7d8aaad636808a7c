//! Creates and deletes VIFs, as the state machines of the pools decide.

use std::sync::{Arc, Weak};
use std::time::Duration;

use staffetta_driver::{
    Activation, BulkVifRequest, BulkVifResult, DriverError, Owner, Reason, Vif, VifId, VifPoolKey,
};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::Inner;
use super::exhaustion::{is_exhaustion, is_shared};
use super::request::not_leading;
use super::state::{KeyPool, Place, VifPoolState};
use crate::pool::{Action, Grown, Shortfall};

/// The timeout of one call of the driver. The driver's own timeouts are shorter.
const CALL_TIMEOUT: Duration = Duration::from_secs(420);

impl Inner {
    /// Serves the requests that wait for VIFs of `key`, and starts the actions that its pool requests. Returns the task that
    /// deletes VIFs, if one was started.
    pub(super) fn reconcile(
        self: &Arc<Self>,
        state: &mut VifPoolState,
        key: &Arc<VifPoolKey>,
    ) -> Option<JoinHandle<()>> {
        let (now, mut deletion) = (self.now(), None);
        let pool = state.pools.get_mut(key)?;
        let blocked = state.exhaustion.blocked(key, now);
        pool.warm.block(blocked.map_or(Duration::ZERO, |(until, _)| until));
        if let Some((_, failure)) = blocked {
            pool.failure = Some(failure.clone());
        }
        self.wake_waiting(pool);
        while let Some(action) = pool.warm.plan(now) {
            let (this, key) = (Arc::clone(self), Arc::clone(key));
            match action {
                Action::Grow { op, count, want } => {
                    let count = state.exhaustion.begin(&key, count, pool.warm.waiting().count());
                    let (subnets, security_groups) = (pool.subnets.clone(), want);
                    let order =
                        BulkVifRequest { key: VifPoolKey::clone(&key), subnets, security_groups, count };
                    tokio::spawn(this.create(key, op, order));
                }
                Action::Shrink { op, groups } => {
                    let vifs = groups.iter().filter_map(|id| state.places.get(id));
                    let vifs = vifs.map(|place| Vif::clone(&place.vif)).collect();
                    deletion = Some(tokio::spawn(this.delete(key, op, vifs)));
                }
            }
        }
        pool.due = pool.warm.next(now);
        if pool.due.is_some() {
            self.wake.notify_one();
        }
        if pool.warm.is_done() {
            state.pools.remove(key);
        }
        deletion
    }

    /// Creates the VIFs of an order by one or more calls. The waiting requests get the VIFs of each call at once, before the next
    /// call.
    async fn create(self: Arc<Self>, key: Arc<VifPoolKey>, op: u64, mut order: BulkVifRequest) {
        let mut created = 0;
        loop {
            let BulkVifResult { vifs, failure } = self.create_once(order.clone()).await;
            let short = failure.is_some() || vifs.is_empty();
            self.count(|counters| {
                counters.short_refills += u64::from(short);
                counters.refills += u64::from(!short);
            });
            if let Some(error) = &failure {
                tracing::warn!(host = key.host, network = %key.network, ordered = order.count, created = vifs.len(), error = %error,
                    "not all VIFs of the pool were created");
                if error.ambiguous() {
                    self.request_listing();
                }
            }
            created += vifs.len();
            let mut state = self.state.lock();
            let state = &mut *state;
            let Some(pool) = state.pools.get_mut(&key) else { return };
            let goes_on = !short && !pool.warm.is_draining();
            let rest = if goes_on { order.count.saturating_sub(vifs.len()) } else { 0 };
            let (got, shortfall) =
                (vifs.iter().map(|vif| vif.id.clone()).collect(), failure.as_ref().map(shortfall));
            if pool.warm.grown(op, Grown { got, rest, shortfall }, self.now()) {
                for vif in vifs {
                    let place = Place { key: Arc::clone(&key), vif: Arc::new(vif) };
                    self.prepare(pool, &place);
                    state.places.insert(place.vif.id.clone(), place);
                }
            }
            if let Some(error) = failure.as_ref().filter(|_| shortfall == Some(Shortfall::Refused)) {
                for hold in pool.warm.dismiss(&order.security_groups) {
                    if let Some(waker) = pool.waiters.remove(&hold) {
                        drop(waker.send(Err(error.clone().unambiguous())));
                    }
                }
            }
            pool.failure = failure;
            if rest == 0 {
                for other in self.end_attempt(state, &key, created) {
                    self.reconcile(state, &other);
                }
            }
            self.reconcile(state, &key);
            if rest == 0 {
                return;
            }
            order.count = rest;
        }
    }

    /// Creates VIFs by one call of the driver. Fails without a call if this process is no longer the leader.
    async fn create_once(&self, order: BulkVifRequest) -> BulkVifResult {
        let failed = |error| BulkVifResult { vifs: Vec::new(), failure: Some(error) };
        if !(self.is_leader)() {
            return failed(not_leading());
        }
        let bulk = Arc::clone(&self.bulk);
        bounded("create VIFs for the pool", async move { bulk.create_vifs(&order).await })
            .await
            .unwrap_or_else(failed)
    }

    /// Records that the pool `key` has finished an attempt to create VIFs, and created `created` of them. Returns the keys of the other
    /// pools that may try again, because a quota or a subnet that they share has room again.
    fn end_attempt(
        &self,
        state: &mut VifPoolState,
        key: &Arc<VifPoolKey>,
        created: usize,
    ) -> Vec<Arc<VifPoolKey>> {
        let number = state.next_number();
        let Some(pool) = state.pools.get_mut(key) else { return Vec::new() };
        let failure = pool.failure.as_ref();
        if failure.is_some_and(|failure| is_exhaustion(key, failure)) {
            pool.exhausted = number;
            // The back-off is that of all pools that need the resource.
            pool.warm.end_backoff();
        }
        if !state.exhaustion.end(key, created, failure, self.now()) {
            return Vec::new();
        }
        state.pools.keys().filter(|other| *other != key && is_shared(other, key)).cloned().collect()
    }

    /// Deletes VIFs, and records the outcome of the action `op` in the pool of `key`.
    async fn delete(self: Arc<Self>, key: Arc<VifPoolKey>, op: u64, vifs: Vec<Vif>) {
        let ids: Vec<_> = vifs.iter().map(|vif| vif.id.clone()).collect();
        let left = self.delete_once(vifs).await;
        let mut state = self.state.lock();
        let now = self.now();
        let shrunk = state.pools.get_mut(&key).is_some_and(|pool| pool.warm.shrunk(op, &left, now));
        for id in ids.iter().filter(|id| shrunk && !left.contains(id)) {
            state.lose(&key, id);
        }
        self.reconcile(&mut state, &key);
    }

    /// Deletes incomplete VIFs that interrupted calls left behind. The next listing finds those that still exist.
    pub(super) async fn delete_leftovers(self: Arc<Self>, mut vifs: Vec<Vif>) {
        // A pod may list one of them by now.
        vifs.retain(|vif| !self.state.lock().holders.contains_key(&vif.id));
        if !vifs.is_empty() && (self.is_leader)() {
            tracing::info!(count = vifs.len(), "incomplete VIFs are deleted");
            self.delete_once(vifs).await;
        }
    }

    /// Deletes VIFs, unless this process is no longer the leader. Returns the ids of the VIFs that still exist, or may.
    async fn delete_once(&self, vifs: Vec<Vif>) -> Vec<VifId> {
        let ids: Vec<_> = vifs.iter().map(|vif| vif.id.clone()).collect();
        if !(self.is_leader)() {
            return ids;
        }
        let bulk = Arc::clone(&self.bulk);
        let Ok(left) = bounded("delete VIFs", async move { bulk.delete_vifs(&vifs).await }).await else {
            return ids;
        };
        if let Some((id, error)) = left.first() {
            tracing::warn!(vif = %id, left = left.len(), error = %error, "unused VIFs could not be deleted yet");
        }
        left.into_iter().map(|(id, _)| id).collect()
    }

    /// Activates a VIF by the VIF driver. If a VIF of the pool does not exist any more, all existing VIFs are listed again,
    /// because others may be missing too.
    pub(super) async fn activate(&self, owner: &Owner, vif: &Vif) -> Result<Activation, DriverError> {
        let result = self.vifs.activate_vif(owner, vif).await;
        let mut state = self.state.lock();
        if let Some(place) = state.places.get_mut(&vif.id) {
            match &result {
                Ok(Activation::Active(_)) => Arc::make_mut(&mut place.vif).active = true,
                Err(error) if error.reason() == Reason::NotFound => {
                    drop(state);
                    self.request_listing();
                }
                _ => {}
            }
        }
        result
    }

    /// Prepares a VIF that no pod uses: records whether it is active, and starts its activation if it needs no pod for that.
    pub(super) fn prepare(self: &Arc<Self>, pool: &mut KeyPool, place: &Place) {
        let vif = self.as_unbound(&place.vif);
        pool.warm.ready(&vif.id, vif.active);
        if !vif.active && self.bulk.is_active_unbound(&vif) {
            tokio::spawn(activate(Arc::downgrade(self), Arc::clone(&place.key), vif));
        }
    }

    /// Returns the VIF in the state that it has while no pod uses it: it is active only if it does not need a node to bind it.
    pub(super) fn as_unbound(&self, vif: &Vif) -> Vif {
        Vif { active: vif.active && self.bulk.is_active_unbound(vif), ..vif.clone() }
    }
}

/// Activates a VIF that no pod uses, and polls after the delays that the driver returns. Ends early if a pod gets the VIF, if the VIF is
/// removed from the pool, if this process is no longer the leader, or if an error is not transient.
async fn activate(pool: Weak<Inner>, key: Arc<VifPoolKey>, vif: Vif) {
    loop {
        let Some(inner) = pool.upgrade() else { return };
        let unused = |state: &VifPoolState| {
            let pool = state.pools.get(&key);
            state.places.contains_key(&vif.id) && pool.is_some_and(|pool| !pool.warm.is_used(&vif.id))
        };
        if !(inner.is_leader)() || !unused(&inner.state.lock()) {
            return;
        }
        let wait = match inner.activate(&Owner::default(), &vif).await {
            Ok(Activation::NotYet { poll_after }) => poll_after,
            Ok(Activation::Active(_)) => {
                if let Some(pool) = inner.state.lock().pools.get_mut(&key) {
                    pool.warm.ready(&vif.id, true);
                }
                return;
            }
            Err(error) if error.transient() => error.retry_after().unwrap_or(Duration::from_secs(5)),
            Err(_) => return,
        };
        drop(inner);
        tokio::time::sleep(wait.max(Duration::from_millis(10))).await;
    }
}

/// Runs a call of the driver for at most [`CALL_TIMEOUT`]. A timeout or a panic is returned as an ambiguous error.
async fn bounded<T: Send + 'static>(
    step: &'static str,
    call: impl Future<Output = T> + Send + 'static,
) -> Result<T, DriverError> {
    let mut task = tokio::spawn(call);
    let failed = || DriverError::new(Reason::Unavailable, step).maybe_applied();
    if let Ok(ended) = timeout(CALL_TIMEOUT, &mut task).await {
        return ended.map_err(|panic| failed().because(panic));
    }
    task.abort();
    Err(failed().detail(format!("there was no answer for {} s", CALL_TIMEOUT.as_secs())))
}

/// Converts the error of a failed creation of VIFs to the [`Shortfall`] by which the state machine backs off.
fn shortfall(error: &DriverError) -> Shortfall {
    match (error.retry_after(), error.reason()) {
        (Some(hint), _) => Shortfall::Throttled(hint),
        (None, Reason::Quota | Reason::NoAddress) => Shortfall::Exhausted,
        (None, Reason::NotFound | Reason::Refused) if !error.ambiguous() => Shortfall::Refused,
        (None, _) => Shortfall::Failed,
    }
}
