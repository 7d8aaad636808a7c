//! The pool that keeps VIFs ready: the thin shell around [`warm_pool`](crate::warm_pool).
//!
//! | file | what is in it |
//! |---|---|
//! | `state` | what the pool knows |
//! | `request` | hands VIFs out, and takes them back |
//! | `refusal` | why there is none |
//! | `hand_out` | a VIF on its way, which is not lost when nobody takes it |
//! | `scarcity` | what there is no more of, for many keys at a time |
//! | `work` | makes and destroys VIFs, as the warm pool decides |
//! | `tend` | what the passing of time brings |
//! | `existing` | what the other world and the pods tell |
//! | `vacate` | gives up what is kept in a network |

mod existing;
mod figures;
mod hand_out;
mod ports;
mod refusal;
mod request;
mod scarcity;
mod state;
mod tend;
mod vacate;
mod work;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use self::figures::Counters;
use self::state::State;
use crate::error::DriverError;
use crate::id::{NetworkId, SecurityGroupId, Uid, VifId};
use crate::nodes::{NodeFacts, Nodes};
use crate::owner::{Marked, Owner};
use crate::pod_vif::{Activation, PodVifDriver, VifRequest};
use crate::pool_ledger::PoolLedger;
use crate::stock::VifStock;
use crate::vif::Vif;
use crate::vif_pool::VifPoolDriver;
use crate::warm_pool::MinMaxBatch;

pub use self::figures::PoolFigures;

/// How many VIFs a pool keeps ready for each node, project, network and set of subnets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolPolicy {
    /// How many are ready at least, once somebody asked.
    pub min: usize,
    /// How many are ready at most; 0: any number. Not less than `min`.
    pub max: usize,
    /// How many are made at a time at least.
    pub batch: usize,
    /// How long a VIF that was given back rests before somebody else gets it.
    pub cool_down: Duration,
}

impl PoolPolicy {
    fn sizes(&self) -> MinMaxBatch {
        MinMaxBatch { min: self.min, max: self.max, batch: self.batch, cap_groups: None }
    }
}

/// Answers whether this process may change anything at this moment. One that does not lead any more may not.
pub type MayAct = Arc<dyn Fn() -> bool + Send + Sync>;

/// Keeps VIFs ready in front of a VIF driver.
///
/// * A pod gets one without a call to the other world, when one with its security groups is free; with one call, when
///   the groups must be changed. Else it waits until one is made, together with the others that wait for one of the same
///   kind: they share one call, and with it the pool is refilled.
/// * What pods give back costs no call either. It cools down, and the next pod gets it; past the most that may be ready it is
///   destroyed.
/// * When the other world has no more, or is in trouble, those who wait hear why and when to ask again, and it is asked no
///   more often for many of them than for one.
/// * Nothing is handed out before it is known what pods use; see [`PoolLedger`]. What exists is read again when it is
///   asked for, and at once when a VIF turns out to have been deleted outside.
/// * What is kept for a node that is gone, in two looks a minute apart, is destroyed.
///
/// A pod is handed what the other world told of a VIF, and nothing that another pod showed of it; one that comes back as another
/// VIF than it went is destroyed.
/// A VIF that did not come out of a stock is passed on to the VIF driver, so that pools can be switched on and off.
pub struct PooledVifs {
    inner: Arc<Inner>,
    tender: Mutex<Option<AbortHandle>>,
}

pub(crate) struct Inner {
    stock: Arc<dyn VifStock>,
    vifs: Arc<dyn PodVifDriver>,
    policy: PoolPolicy,
    may_act: MayAct,
    nodes: Nodes,
    state: Mutex<State>,
    counters: Arc<Counters>,
    /// Whether something may exist of which nobody knows, or not exist any more, so that it has to be read what does.
    doubt: AtomicBool,
    /// Rings when time alone may bring something earlier than was known.
    wake: Arc<Notify>,
    began: Instant,
}

impl PooledVifs {
    /// Keeps VIFs of `stock` ready in front of `vifs`, as `policy` says, while `may_act` says yes.
    pub fn new(
        stock: Arc<dyn VifStock>,
        vifs: Arc<dyn PodVifDriver>,
        policy: PoolPolicy,
        may_act: MayAct,
    ) -> Self {
        let inner = Inner {
            stock,
            vifs,
            policy,
            may_act,
            nodes: Nodes::default(),
            state: Mutex::default(),
            counters: Arc::default(),
            doubt: AtomicBool::new(false),
            wake: Arc::default(),
            began: Instant::now(),
        };
        Self { inner: Arc::new(inner), tender: Mutex::default() }
    }

    /// The figures of the pool at any moment. They keep nothing of it alive: of a pool that is gone they say what it has
    /// counted, and that it has nothing.
    pub fn figures(&self) -> impl Fn() -> PoolFigures + Send + Sync + use<> {
        let (inner, counters) = (Arc::downgrade(&self.inner), Arc::clone(&self.inner.counters));
        move || {
            let Some(inner) = inner.upgrade() else { return counters.figures() };
            let counts = inner.state().counts(inner.now());
            PoolFigures {
                free: counts.warm,
                cooling: counts.cooling,
                used: counts.used,
                making: counts.growing,
                doomed: counts.shrinking,
                waiting: counts.waiting,
                ..counters.figures()
            }
        }
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time as the warm pools are told it.
    fn now(&self) -> Duration {
        self.began.elapsed()
    }
}

impl Drop for PooledVifs {
    fn drop(&mut self) {
        if let Some(tender) = self.tender.lock().unwrap_or_else(PoisonError::into_inner).take() {
            tender.abort();
        }
    }
}

#[async_trait]
impl VifPoolDriver for PooledVifs {
    async fn request_vif(&self, request: &VifRequest) -> Result<Vif, DriverError> {
        self.inner.request(request).await
    }

    async fn release_vif(&self, owner: &Owner, vif: &Vif) -> Result<(), DriverError> {
        self.inner.release(owner, vif).await
    }

    async fn activate_vif(&self, vif: &Vif) -> Result<Activation, DriverError> {
        self.inner.ask(vif).await
    }

    async fn vifs(&self, owner: Option<&Owner>) -> Result<Vec<Marked<Vif>>, DriverError> {
        match owner {
            Some(owner) => self.inner.vifs_of(owner).await,
            None => self.inner.all_vifs().await,
        }
    }

    fn keeps(&self, vif: &VifId) -> bool {
        self.inner.state().places.contains_key(vif)
    }

    fn regrouped(&self, vif: &VifId, security_groups: Option<&[SecurityGroupId]>) {
        self.inner.regrouped(vif, security_groups);
    }

    fn ledger(&self) -> Option<&dyn PoolLedger> {
        Some(self)
    }

    async fn vacate(&self, network: &NetworkId) -> Result<(), DriverError> {
        self.inner.vacate(network).await
    }
}

#[async_trait]
impl PoolLedger for PooledVifs {
    async fn read(&self) -> Result<(), DriverError> {
        self.inner.read().await
    }

    fn shows(&self, owner: &Owner, vifs: &[Vif]) {
        self.inner.shows(owner, vifs);
    }

    fn contested(&self, uid: &Uid) -> bool {
        self.inner.state().is_contested(uid)
    }

    fn begin(&self) {
        if self.inner.begin() {
            let task = tokio::spawn(tend::tend(Arc::downgrade(&self.inner)));
            *self.tender.lock().unwrap_or_else(PoisonError::into_inner) = Some(task.abort_handle());
        }
    }

    fn node(&self, name: &str, facts: Option<&NodeFacts>) {
        self.inner.nodes.note(name, facts);
    }
}

#[cfg(test)]
mod tests;
