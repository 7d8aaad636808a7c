//! The pool that keeps VIFs ready: the async shell around [`pool`](crate::pool).
//!
//! | file | contents |
//! |---|---|
//! | `state` | the VIFs by key, their holders, and the waiting requests |
//! | `request` | the [`PodVifDriver`]: hands VIFs out, and takes them back |
//! | `work` | creates and deletes VIFs, as the pool decides |
//! | `exhaustion` | exhausted resources that several keys share |
//! | `background` | the task that acts when time has passed, and draining |
//! | `existing` | the [`VifPoolObserver`]: compares the pool with the VIFs that exist and the pods that use them |

mod background;
mod exhaustion;
mod existing;
mod metrics;
mod request;
mod state;
mod work;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;
use tokio::time::Instant;

use self::state::{Place, State, sorted};
use crate::error::DriverError;
use crate::id::{NetworkId, SecurityGroupId, VifId};
use crate::pod::PodVifDriver;
use crate::vif_pool::{BulkVifDriver, NodeIndex, VifPoolDriver, VifPoolKey, VifPoolObserver};

pub use self::metrics::VifPoolMetrics;

/// The size of a pool for each node, project, network and set of subnets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VifPoolPolicy {
    /// The minimum number of free VIFs, after the first request.
    pub min: usize,
    /// The maximum number of free VIFs, 0 for no limit. Not less than `min`.
    pub max: usize,
    /// The minimum number of VIFs that are created at a time.
    pub batch: usize,
    /// The time before a returned VIF is reused.
    pub cool_down: Duration,
}

/// Returns `true` while this process is the leader. Only the leader changes anything.
pub type IsLeader = Arc<dyn Fn() -> bool + Send + Sync>;

/// A pool that keeps VIFs ready in front of a VIF driver.
///
/// * A pod gets a free VIF with its security groups without a call, and any other free one with the call that changes the
///   groups. Otherwise it waits until one is created, together with the other pods that wait for a VIF of the same key: they
///   share one call, which refills the pool too.
/// * Returning a VIF takes no call. It cools down, and the next pod gets it; beyond the maximum it is deleted.
/// * When a quota or a subnet is exhausted or the cloud fails, waiting requests end with the error and the time to repeat them. The
///   cloud gets no more calls for many of them than for one.
/// * No VIF is handed out before it is known which pods use VIFs; see [`VifPoolObserver`]. The existing VIFs are listed again
///   on request, and at once when a VIF turns out to have been deleted from outside.
/// * The VIFs of a node that is missing in two checks, a minute apart, are deleted.
///
/// A pod is handed a VIF as the driver returned it, whatever another pod's annotation says; a VIF that a pod returns changed is
/// deleted. A VIF that is not of the pool is passed on to the VIF driver, so that pools can be switched on and off.
pub struct WarmVifPool {
    inner: Arc<Inner>,
}

struct Inner {
    bulk: Arc<dyn BulkVifDriver>,
    vifs: Arc<dyn PodVifDriver>,
    policy: VifPoolPolicy,
    is_leader: IsLeader,
    nodes: NodeIndex,
    state: Mutex<State>,
    /// The counters; the gauges are 0.
    counters: Arc<Mutex<VifPoolMetrics>>,
    /// Wakes the background task before its next work is due.
    wake: Arc<Notify>,
    began: Instant,
}

impl WarmVifPool {
    /// Creates a pool in front of `vifs`, whose VIFs `bulk` creates and deletes.
    pub fn new(
        bulk: Arc<dyn BulkVifDriver>,
        vifs: Arc<dyn PodVifDriver>,
        policy: VifPoolPolicy,
        is_leader: IsLeader,
    ) -> Self {
        let inner = Inner {
            bulk,
            vifs,
            policy,
            is_leader,
            nodes: NodeIndex::default(),
            state: Mutex::default(),
            counters: Arc::default(),
            wake: Arc::default(),
            began: Instant::now(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Returns a function that reads the metrics. It does not keep the pool alive: after the pool was dropped, it returns the last
    /// counters, with all gauges 0.
    pub fn metrics(&self) -> impl Fn() -> VifPoolMetrics + Send + Sync + use<> {
        let (inner, counters) = (Arc::downgrade(&self.inner), Arc::clone(&self.inner.counters));
        move || {
            let counters = *counters.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(inner) = inner.upgrade() else { return counters };
            let (state, now) = (inner.state(), inner.now());
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
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, add: impl FnOnce(&mut VifPoolMetrics)) {
        add(&mut self.counters.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Returns the time since the pool was created.
    fn now(&self) -> Duration {
        self.began.elapsed()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.wake.notify_one(); // ends the background task
    }
}

#[async_trait]
impl VifPoolDriver for WarmVifPool {
    fn contains_vif(&self, vif: &VifId) -> bool {
        self.inner.state().places.contains_key(vif)
    }

    /// A VIF without security groups is requested by no pod: a pod that names none gets those of the project.
    fn security_groups_changed(&self, vif: &VifId, security_groups: Option<&[SecurityGroupId]>) {
        let mut state = self.inner.state();
        let Some(Place { key, .. }) = state.places.get(vif).cloned() else { return };
        let config = security_groups.filter(|groups| !groups.is_empty()).map(sorted);
        if let Some(pool) = state.pools.get_mut(&key) {
            pool.warm.changed(vif, config.as_ref());
        }
    }

    fn observer(&self) -> Option<&dyn VifPoolObserver> {
        Some(self)
    }

    /// The deleted VIFs need not cool down, since no pod gets them.
    async fn drain_network(&self, network: &NetworkId) -> Result<(), DriverError> {
        self.inner.drain_network(network).await
    }
}
