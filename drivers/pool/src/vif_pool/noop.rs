//! The VIF pool that keeps no VIFs ready.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use staffetta_driver::{
    Activation, DriverError, Owned, Owner, PodVifDriver, Vif, VifPoolDriver, VifPoolKey, VifRequest,
};
use tokio::time::Instant;

use crate::pool::{AttemptBackoff, Shortfall};
use crate::vif_pool::warm::exhaustion::Scope;

/// The delay of a request while as many others as are allowed try to get a VIF of an exhausted resource.
const CHECK_AGAIN: Duration = Duration::from_secs(1);
/// The number of simultaneous requests from which on a resource no longer counts as exhausted.
const PLENTY: usize = 32;

/// The pool `noop`, named as in Kuryr, which passes all calls to the VIF driver. It does not change the VIFs that a previously configured
/// pool created, and logs their number when VIFs are listed.
///
/// While a quota or a subnet is exhausted, one request at a time tries, with back-off, however many pods wait. After each success, twice as
/// many may try.
pub struct NoopVifPool {
    vifs: Arc<dyn PodVifDriver>,
    exhausted: Mutex<HashMap<Scope, Exhausted>>,
    /// The time from which the times of the back-offs are counted.
    began: Instant,
}

/// An exhausted resource: a quota, or the addresses of subnets.
struct Exhausted {
    /// The last error that reported it.
    failure: DriverError,
    backoff: AttemptBackoff,
    /// The number of requests that may try at the same time.
    room: usize,
    /// The requests that try; each holds a clone.
    trying: Arc<()>,
}

impl NoopVifPool {
    /// Creates the pool in front of `vifs`.
    pub fn new(vifs: Arc<dyn PodVifDriver>) -> Self {
        Self { vifs, exhausted: Mutex::default(), began: Instant::now() }
    }

    /// Returns what a request must hold while it tries to get a VIF. Fails without a call if a resource that it needs is exhausted, and
    /// others try.
    fn admit(&self, scopes: &[Scope]) -> Result<Vec<Arc<()>>, DriverError> {
        let now = self.began.elapsed();
        let exhausted = self.exhausted.lock();
        let needed = || scopes.iter().filter_map(|scope| exhausted.get(scope));
        for Exhausted { failure, backoff, room, trying } in needed() {
            let is_full = Arc::strong_count(trying) > *room;
            if let Some(wait) = backoff.remaining(now).or(is_full.then_some(CHECK_AGAIN)) {
                return Err(failure.clone().after(wait));
            }
        }
        Ok(needed().map(|exhausted| Arc::clone(&exhausted.trying)).collect())
    }

    /// Records the result of a request for a VIF of `key`.
    fn record(&self, key: &VifPoolKey, scopes: &[Scope], failure: Option<&DriverError>) {
        let now = self.began.elapsed();
        let mut exhausted = self.exhausted.lock();
        let Some(failure) = failure else {
            for scope in scopes {
                if let Some(relieved) = exhausted.get_mut(scope) {
                    (relieved.room, relieved.backoff) = (relieved.room * 2, AttemptBackoff::default());
                }
            }
            exhausted.retain(|_, exhausted| exhausted.room < PLENTY);
            return;
        };
        let Some(scope) = Scope::exhausted(key, failure) else { return };
        let failure = failure.clone().unambiguous();
        let (backoff, trying) = (AttemptBackoff::default(), Arc::default());
        let found = exhausted.entry(scope).or_insert(Exhausted {
            failure: failure.clone(),
            backoff,
            room: 1,
            trying,
        });
        (found.failure, found.room) = (failure, 1);
        // Requests that were under way at the same time are one finding.
        if found.backoff.remaining(now).is_none() {
            found.backoff.record(Some(Shortfall::Exhausted), now);
        }
    }
}

#[async_trait]
impl PodVifDriver for NoopVifPool {
    async fn request_vif(&self, request: &VifRequest) -> Result<Vif, DriverError> {
        let key = VifPoolKey::new("", request);
        let scopes = Scope::of(&key);
        let _trying = self.admit(&scopes)?;
        let requested = self.vifs.request_vif(request).await;
        self.record(&key, &scopes, requested.as_ref().err());
        requested
    }

    async fn release_vif(&self, owner: &Owner, vif: &Vif) -> Result<(), DriverError> {
        self.vifs.release_vif(owner, vif).await
    }

    async fn activate_vif(&self, owner: &Owner, vif: &Vif) -> Result<Activation, DriverError> {
        self.vifs.activate_vif(owner, vif).await
    }

    async fn unmarked_vifs(&self) -> Result<Vec<Owned<Vif>>, DriverError> {
        self.vifs.unmarked_vifs().await
    }

    async fn vifs(&self, owner: Option<&Owner>) -> Result<Vec<Owned<Vif>>, DriverError> {
        let marked = self.vifs.vifs(owner).await?;
        let left = marked.iter().filter(|marked| marked.owner.is_none()).count();
        if left > 0 {
            tracing::warn!(
                count = left,
                "VIFs of a previously configured pool still exist; those that no pod uses can be deleted"
            );
        }
        Ok(marked)
    }
}

impl VifPoolDriver for NoopVifPool {}
