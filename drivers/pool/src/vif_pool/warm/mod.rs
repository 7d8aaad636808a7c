//! The VIF pool that keeps VIFs ready: it executes the decisions of the state machine [`pool`](crate::pool).
//!
//! | file | contents |
//! |---|---|
//! | `living` | the living pods, and the VIFs that they may use although nothing names them |
//! | `state` | the VIFs by key, the pods that hold them, and the waiting requests |
//! | `request` | the implementation of [`PodVifDriver`]: hands VIFs out and takes them back |
//! | `work` | creates and deletes VIFs, as the state machine decides |
//! | `exhaustion` | exhausted resources that the pools of several keys share |
//! | `background` | the background task for work that is due at a time |
//! | `existing` | the implementation of [`VifPoolObserver`]: compares the pool with the existing VIFs and the pods that use them |

mod background;
pub(super) mod exhaustion;
mod existing;
mod living;
mod request;
mod state;
mod work;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use staffetta_driver::{
    BulkVifDriver, DriverError, NetworkId, Owner, PodVifDriver, PoolClaim, PublishedVifs, Reason,
    SecurityGroupId, Uid, Vif, VifId, VifPoolDriver, VifPoolObserver, VifRequest,
};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use self::state::{Place, StartupPhase, VifPoolState, sorted};
use crate::vif_pool::NodeIndex;

/// The size of a warm pool. It applies to each combination of node, project, network and set of subnets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VifPoolPolicy {
    /// The minimum number of free VIFs. VIFs are created ahead of demand only after the first request.
    pub min: usize,
    /// The maximum number of free VIFs; 0 for no limit. Not less than `min`.
    pub max: usize,
    /// The minimum number of VIFs in one request for creation, as far as `max` allows.
    pub batch: usize,
    /// The time for which a returned VIF is not handed out again.
    pub cool_down: Duration,
}

/// A function that returns `true` while this process is the leader. A process that is not the leader changes nothing in the cloud.
pub type IsLeader = Arc<dyn Fn() -> bool + Send + Sync>;

/// Metrics of a VIF pool. The fields up to `waiting` are gauges; the others are counters since the creation of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VifPoolMetrics {
    /// The number of free VIFs, which can be handed out at once.
    pub free: usize,
    /// The number of VIFs that were returned and are still in their cool-down, or were found and are not known to be free yet.
    pub cooling: usize,
    /// The number of VIFs that pods use.
    pub used: usize,
    /// The number of VIFs that are being created.
    pub creating: usize,
    /// The number of VIFs that are being deleted, or will be.
    pub deleting: usize,
    /// The number of pods that wait for a VIF.
    pub waiting: usize,
    /// The number of requests that got a VIF at once.
    pub warm: u64,
    /// The number of requests that got a VIF after they had waited for it.
    pub waited: u64,
    /// The number of calls to the driver that created VIFs without a failure.
    pub refills: u64,
    /// The number of calls to the driver that failed to create some or all of the requested VIFs, or created none.
    pub short_refills: u64,
    /// The number of conflicts that were found: VIFs that the annotations of two pods contain, and VIFs that a pod uses and that do not
    /// exist.
    pub conflicts: u64,
}

impl VifPoolMetrics {
    /// Returns these metrics with the counters of a previous pool added. The gauges of `earlier` are ignored.
    #[must_use]
    pub fn after(self, earlier: &Self) -> Self {
        Self {
            warm: self.warm + earlier.warm,
            waited: self.waited + earlier.waited,
            refills: self.refills + earlier.refills,
            short_refills: self.short_refills + earlier.short_refills,
            conflicts: self.conflicts + earlier.conflicts,
            ..self
        }
    }
}

/// A VIF pool that keeps free VIFs ready in front of a VIF driver.
///
/// * A pod gets a free VIF that has its security groups without any call to the cloud. If no free VIF has them, one call changes
///   the groups of another free VIF. If no VIF is free, the request waits for a new VIF. All requests that wait for VIFs of the
///   same key share one call, which refills the pool too.
/// * Returning a VIF takes no call to the cloud. The VIF is free again after a cool-down. VIFs beyond the maximum are deleted.
/// * If a quota or a subnet is exhausted, or the cloud fails, waiting requests end with the error and the delay before they may
///   be repeated. The cloud gets as many calls for many waiting requests as for one.
/// * No VIF is handed out until all pods that use VIFs are known; see [`VifPoolObserver`]. The existing VIFs are listed again on
///   request, and at once if a VIF of the pool does not exist any more. A VIF that was found by a listing is handed out only after another
///   one, at the end of its cool-down, has shown it, and if no pod has it in its annotation then: the last calls of the process that led
///   before may have been about to delete it, or to write it into an annotation.
/// * The VIFs of a node that is missing in two checks, a minute apart, are deleted, used ones after their return.
///
/// A pod gets a VIF as the driver returned it, whatever annotations of pods contain. If a pod returns a VIF with other
/// properties, the VIF is deleted. Calls for VIFs that do not belong to the pool are passed to the VIF driver, so that a pool can
/// be enabled and disabled at any time.
pub struct WarmVifPool {
    inner: Arc<Inner>,
    /// The background task; empty until [`start`](VifPoolObserver::start). It is aborted when the pool is dropped.
    background: OnceLock<AbortHandle>,
}

/// The part of a [`WarmVifPool`] that its calls and its background task share.
struct Inner {
    bulk: Arc<dyn BulkVifDriver>,
    vifs: Arc<dyn PodVifDriver>,
    published: Arc<dyn PublishedVifs>,
    policy: VifPoolPolicy,
    is_leader: IsLeader,
    nodes: NodeIndex,
    state: Mutex<VifPoolState>,
    /// The counters of the metrics. The gauges in this value are always 0.
    counters: Arc<Mutex<VifPoolMetrics>>,
    /// Notified to wake the background task before its next work is due.
    wake: Notify,
    /// The time at which the pool was created.
    began: Instant,
}

impl WarmVifPool {
    /// Creates a pool in front of the VIF driver `vifs`. The pool creates and deletes its VIFs by `bulk`, and reads by `published` which of
    /// them pods have in their annotations.
    pub fn new(
        bulk: Arc<dyn BulkVifDriver>,
        vifs: Arc<dyn PodVifDriver>,
        published: Arc<dyn PublishedVifs>,
        policy: VifPoolPolicy,
        is_leader: IsLeader,
    ) -> Self {
        let inner = Inner {
            bulk,
            vifs,
            published,
            policy,
            is_leader,
            nodes: NodeIndex::default(),
            state: Mutex::default(),
            counters: Arc::default(),
            wake: Notify::new(),
            began: Instant::now(),
        };
        Self { inner: Arc::new(inner), background: OnceLock::new() }
    }

    /// Returns a function that reads the current metrics. The function does not keep the pool alive: after the pool was dropped,
    /// it returns the last counters, with all gauges 0.
    pub fn metrics(&self) -> impl Fn() -> VifPoolMetrics + Send + Sync + use<> {
        let (inner, counters) = (Arc::downgrade(&self.inner), Arc::clone(&self.inner.counters));
        move || {
            let counters = *counters.lock();
            let Some(inner) = inner.upgrade() else { return counters };
            let (state, now) = (inner.state.lock(), inner.now());
            let counts = state.pools.values().map(|pool| pool.warm.counts(now));
            counts.fold(counters, |sum, counts| VifPoolMetrics {
                free: sum.free + counts.warm,
                cooling: sum.cooling + counts.cooling,
                used: sum.used + counts.used,
                creating: sum.creating + counts.growing,
                deleting: sum.deleting + counts.shrinking,
                waiting: sum.waiting + counts.waiting,
                ..sum
            })
        }
    }
}

impl Inner {
    /// Changes the counters of the metrics by `add`.
    fn count(&self, add: impl FnOnce(&mut VifPoolMetrics)) {
        add(&mut self.counters.lock());
    }

    /// Returns the time since the pool was created.
    fn now(&self) -> Duration {
        self.began.elapsed()
    }
}

impl Drop for WarmVifPool {
    fn drop(&mut self) {
        if let Some(task) = self.background.get() {
            task.abort();
        }
    }
}

#[async_trait]
impl VifPoolDriver for WarmVifPool {
    fn contains_vif(&self, vif: &VifId) -> bool {
        self.inner.state.lock().places.contains_key(vif)
    }

    fn claim(&self, owner: &Owner, vif: &Vif) -> PoolClaim {
        self.inner.state.lock().claim(owner, vif)
    }

    fn holds_vifs(&self, pod: &Uid) -> bool {
        !self.inner.state.lock().held_by(pod).is_empty()
    }

    async fn request_additional_vif(&self, request: &VifRequest) -> Result<Vif, DriverError> {
        self.inner.vifs.request_vif(request).await
    }

    /// Records the security groups that the VIF has now; `None` means that they are not known. So does an empty list, because no pod
    /// requests a VIF without security groups: a pod that names none gets those of the project.
    fn security_groups_changed(&self, vif: &VifId, security_groups: Option<&[SecurityGroupId]>) {
        let mut state = self.inner.state.lock();
        let Some(Place { key, .. }) = state.places.get(vif).cloned() else { return };
        let config = security_groups.filter(|groups| !groups.is_empty()).map(sorted);
        if let Some(pool) = state.pools.get_mut(&key) {
            pool.warm.changed(vif, config.as_ref());
        }
    }

    fn observer(&self) -> Option<&dyn VifPoolObserver> {
        Some(self)
    }

    /// Deletes the unused VIFs of a network without a cool-down, since no pod will get them. Fails with [`Reason::Conflict`] if VIFs of the
    /// network remain or are being created, and with [`Reason::Unavailable`] before the start of the pool.
    async fn drain_network(&self, network: &NetworkId) -> Result<(), DriverError> {
        const STEP: &str = "empty the pool of a network";
        let inner = &self.inner;
        let mut deletions = Vec::new();
        {
            let mut state = inner.state.lock();
            if !matches!(state.phase, StartupPhase::Open) {
                let detail =
                    "the pool is starting: the VIFs, or the pods that use them, have not been read yet";
                return Err(DriverError::new(Reason::Unavailable, STEP).detail(detail));
            }
            for key in state.keys_in(network) {
                if let Some(pool) = state.pools.get_mut(&key) {
                    pool.warm.drain();
                    pool.warm.discard_unused();
                }
                deletions.extend(inner.reconcile(&mut state, &key));
            }
        }
        for deletion in deletions {
            // What a deletion that panicked has left is seen below.
            drop(deletion.await);
        }
        if inner.state.lock().keys_in(network).is_empty() {
            return Ok(());
        }
        let detail =
            format!("VIFs of the network {network} are in use, or are just being created or deleted");
        Err(DriverError::new(Reason::Conflict, STEP).detail(detail))
    }
}
