//! Makes and destroys VIFs, as the warm pools decide.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::timeout;

use super::Inner;
use super::figures::count;
use super::hand_out::HandOut;
use super::refusal::not_leading;
use super::scarcity::{Scarcity, is_of_all};
use super::state::{Place, Shelf, State};
use crate::error::{DriverError, Reason};
use crate::id::{SecurityGroupId, VifId};
use crate::pod_vif::Activation;
use crate::stock::{StockKey, StockMade, StockOrder};
use crate::vif::Vif;
use crate::warm_pool::{Action, Fault, Grown};

/// How long one call of a stock may take. Its own bounds are shorter.
const PATIENCE: Duration = Duration::from_secs(420);

/// What is to be done once the lock is free.
pub(super) enum Work {
    /// Make VIFs.
    Make { key: Arc<StockKey>, op: u64, order: StockOrder },
    /// Destroy VIFs.
    Destroy { key: Arc<StockKey>, op: u64, vifs: Vec<Vif> },
    /// Destroy what was left behind half made.
    Clear(Vec<Vif>),
    /// See when a VIF becomes active that does so by itself.
    Activate { key: Arc<StockKey>, vif: Vif },
    /// Put back what nobody took.
    Undelivered(HandOut),
}

impl Inner {
    /// Lets a shelf come to rest: answers those who need wait no longer, and plans.
    pub(super) fn turn(self: &Arc<Self>, state: &mut State, key: &Arc<StockKey>, work: &mut Vec<Work>) {
        let now = self.now();
        let Some(shelf) = state.shelves.get_mut(key) else { return };
        let barred = state.scarcity.bars(key, now);
        shelf.pool.bar(barred.map_or(Duration::ZERO, |(until, _)| until));
        if let Some((_, why)) = barred {
            shelf.failure = Some(why.clone());
        }
        for hold in shelf.pool.tick(now) {
            self.serve(state, key, hold, work);
        }
        let Some(shelf) = state.shelves.get_mut(key) else { return };
        while let Some(action) = shelf.pool.plan(now) {
            let key = Arc::clone(key);
            work.push(match action {
                Action::Grow { op, count, want } => {
                    let count = state.scarcity.asks(&key, count, shelf.pool.waiting().count());
                    let (subnets, security_groups) = (shelf.subnets.clone(), want);
                    let order = StockOrder { key: StockKey::clone(&key), subnets, security_groups, count };
                    Work::Make { key, op, order }
                }
                Action::Shrink { op, groups } => {
                    let vifs = groups.iter().filter_map(|id| shelf.vifs.get(id).cloned()).collect();
                    Work::Destroy { key, op, vifs }
                }
            });
        }
        shelf.due = shelf.pool.next(now);
        if shelf.pool.is_empty() && (shelf.pool.is_draining() || !shelf.pool.is_asked()) {
            state.shelves.remove(key);
        } else if let Some(due) = shelf.due
            && state.due.is_none_or(|known| due < known)
        {
            state.due = Some(due);
            self.wake.notify_one();
        }
    }

    pub(super) fn start(self: &Arc<Self>, work: Vec<Work>) {
        for work in work {
            let this = Arc::clone(self);
            match work {
                Work::Make { key, op, order } => drop(tokio::spawn(this.make(key, op, order))),
                Work::Destroy { key, op, vifs } => drop(tokio::spawn(this.destroy(key, op, vifs))),
                Work::Clear(vifs) => drop(tokio::spawn(async move { this.clear(vifs).await })),
                Work::Activate { key, vif } => {
                    drop(tokio::spawn(activate(Arc::downgrade(self), key, vif)));
                }
                Work::Undelivered(hand_out) => drop(hand_out),
            }
        }
    }

    /// Does all of this, and waits for the end of what is to be destroyed; that goes on when nobody waits any more.
    pub(super) async fn finish(self: &Arc<Self>, work: Vec<Work>) {
        let (mut destroys, mut others) = (Vec::new(), Vec::new());
        for work in work {
            match work {
                Work::Destroy { key, op, vifs } => {
                    destroys.push(tokio::spawn(Arc::clone(self).destroy(key, op, vifs)));
                }
                other => others.push(other),
            }
        }
        self.start(others);
        for destroy in destroys {
            // One that panicked has left something, which is seen then.
            drop(destroy.await);
        }
    }

    /// Lets the stock make what was ordered. Those who wait have the first part of it before the rest is made.
    async fn make(self: Arc<Self>, key: Arc<StockKey>, op: u64, mut order: StockOrder) {
        let mut brought = 0;
        loop {
            let mut work = Vec::new();
            let made = self.ordered(order.clone()).await;
            self.note(&key, order.count, &made);
            brought += made.vifs.len();
            let failure = made.failure.clone();
            let mut state = self.state();
            let rest = self.stock_up(&mut state, &key, op, order.count, made, &mut work);
            if let Some(error) = failure.as_ref().filter(|error| fault(error) == Fault::Refused) {
                refuse(&mut state, &key, &order.security_groups, error);
            }
            let others =
                if rest == 0 { self.learn(&mut state, &key, brought, failure.as_ref()) } else { Vec::new() };
            for key in others.iter().chain([&key]) {
                self.turn(&mut state, key, &mut work);
            }
            drop(state);
            self.start(work);
            if rest == 0 {
                return;
            }
            order.count = rest;
        }
    }

    /// An attempt to make VIFs brought so many. Answers which others may have some now that could not.
    fn learn(
        &self,
        state: &mut State,
        key: &Arc<StockKey>,
        brought: usize,
        failure: Option<&DriverError>,
    ) -> Vec<Arc<StockKey>> {
        if failure.is_some_and(|failure| is_of_all(key, failure)) {
            let last = state.next_hold();
            if let Some(shelf) = state.shelves.get_mut(key) {
                shelf.scanted = last;
            }
        }
        if !state.scarcity.ended(key, brought, failure, self.now()) {
            return Vec::new();
        }
        let others =
            state.shelves.iter_mut().filter(|(other, _)| *other != key && Scarcity::joins(other, key));
        let relieved = others.map(|(other, shelf)| {
            if shelf.failure.take_if(|failure| is_of_all(other, failure)).is_some() {
                shelf.pool.relieve();
            }
            Arc::clone(other)
        });
        relieved.collect()
    }

    /// What the stock makes of an order; a panic and a call that never ends are failures.
    async fn ordered(&self, order: StockOrder) -> StockMade {
        if !(self.may_act)() {
            return StockMade { vifs: Vec::new(), failure: Some(not_leading()) };
        }
        let stock = Arc::clone(&self.stock);
        let mut task = tokio::spawn(async move { stock.make(&order).await });
        let failed = || DriverError::new(Reason::Unavailable, "make VIFs for the pool").maybe_done();
        let failure = match timeout(PATIENCE, &mut task).await {
            Ok(Ok(made)) => return made,
            Ok(Err(panicked)) => failed().because(panicked),
            Err(_) => {
                task.abort();
                failed().detail(format!("there was no answer for {} s", PATIENCE.as_secs()))
            }
        };
        StockMade { vifs: Vec::new(), failure: Some(failure) }
    }

    fn note(&self, key: &StockKey, ordered: usize, made: &StockMade) {
        let short = made.failure.is_some() || made.vifs.is_empty();
        count(if short { &self.counters.short_refills } else { &self.counters.refills });
        if let Some(error) = &made.failure {
            tracing::warn!(host = key.host, network = %key.network, ordered, made = made.vifs.len(), error = %error,
                "the pool did not get all VIFs that it ordered");
            if error.ambiguous() {
                self.suspect();
            }
        }
    }

    /// Puts what was made on its shelf. Answers how many of those that were `ordered` are still to be made.
    fn stock_up(
        &self,
        state: &mut State,
        key: &Arc<StockKey>,
        op: u64,
        ordered: usize,
        made: StockMade,
        work: &mut Vec<Work>,
    ) -> usize {
        let StockMade { vifs, failure } = made;
        let now = self.now();
        let fault = failure.as_ref().map(fault);
        let Some(shelf) = state.shelves.get_mut(key) else { return 0 };
        let goes_on = failure.is_none() && !vifs.is_empty() && !shelf.pool.is_draining();
        let rest = if goes_on { ordered.saturating_sub(vifs.len()) } else { 0 };
        shelf.failure = failure;
        let got: Vec<_> = vifs.iter().map(|vif| vif.id.clone()).collect();
        let known = if rest > 0 {
            shelf.pool.grew(op, got, rest, now)
        } else {
            shelf.pool.grown(op, Grown { got, fault }, now)
        };
        if !known {
            return 0;
        }
        for vif in vifs {
            let place = Place { key: Arc::clone(key), told: Arc::new(vif.clone()) };
            let vif = self.in_stock(vif);
            shelf.pool.ready(&vif.id, vif.active);
            if !vif.active && self.stock.is_active_unbound(&vif) {
                work.push(Work::Activate { key: Arc::clone(key), vif: vif.clone() });
            }
            state.places.insert(vif.id.clone(), place);
            shelf.vifs.insert(vif.id.clone(), vif);
        }
        rest
    }

    async fn destroy(self: Arc<Self>, key: Arc<StockKey>, op: u64, vifs: Vec<Vif>) {
        let mut work = Vec::new();
        let left = self.destroyed(vifs.clone()).await;
        let mut state = self.state();
        let now = self.now();
        let shrunk = state.shelves.get_mut(&key).is_some_and(|shelf| shelf.pool.shrunk(op, &left, now));
        for id in vifs.into_iter().map(|vif| vif.id).filter(|id| shrunk && !left.contains(id)) {
            state.lose(&key, &id);
        }
        self.turn(&mut state, &key, &mut work);
        drop(state);
        self.start(work);
    }

    /// Destroys what was left behind half made. What is still there is found by the next reading.
    async fn clear(&self, mut vifs: Vec<Vif>) {
        let held = |vif: &Vif| self.state().holders.contains_key(&vif.id);
        // A pod may have shown one of them by now.
        vifs.retain(|vif| !held(vif));
        if vifs.is_empty() || !(self.may_act)() {
            return;
        }
        tracing::info!(count = vifs.len(), "VIFs that were left behind half made are destroyed");
        self.destroyed(vifs).await;
    }

    /// Destroys these. Answers those that are still there, or may be.
    async fn destroyed(&self, vifs: Vec<Vif>) -> Vec<VifId> {
        let ids: Vec<_> = vifs.iter().map(|vif| vif.id.clone()).collect();
        if !(self.may_act)() {
            return ids;
        }
        let stock = Arc::clone(&self.stock);
        let mut task = tokio::spawn(async move { stock.destroy(&vifs).await });
        let Ok(Ok(left)) = timeout(PATIENCE, &mut task).await else {
            task.abort();
            return ids;
        };
        if let Some((id, error)) = left.first() {
            tracing::warn!(vif = %id, left = left.len(), error = %error, "VIFs that nobody needs are not destroyed yet");
        }
        left.into_iter().map(|(id, _)| id).collect()
    }

    /// Asks whether a VIF is active. When one that has its place here was deleted outside, there may be others.
    pub(super) async fn ask(&self, vif: &Vif) -> Result<Activation, DriverError> {
        let asked = self.vifs.activate_vif(vif).await;
        let gone = asked.as_ref().is_err_and(|error| error.reason() == Reason::NotFound);
        if gone && self.state().places.contains_key(&vif.id) {
            self.suspect();
        }
        if let Ok(Activation::Active(_)) = &asked
            && let Some(place) = self.state().places.get_mut(&vif.id)
        {
            Arc::make_mut(&mut place.told).active = true;
        }
        asked
    }

    /// Asks whether a VIF on its shelf is active. Answers when to ask again; none when there is no need to.
    async fn see(&self, key: &StockKey, vif: &Vif) -> Option<Duration> {
        let on_its_shelf = |shelf: &Shelf| shelf.vifs.contains_key(&vif.id);
        if !(self.may_act)() || !self.state().shelves.get(key).is_some_and(on_its_shelf) {
            return None;
        }
        let wait = match self.ask(vif).await {
            Ok(Activation::Active(_)) => {
                if let Some(shelf) = self.state().shelves.get_mut(key) {
                    shelf.pool.ready(&vif.id, true);
                    shelf.vifs.entry(vif.id.clone()).and_modify(|vif| vif.active = true);
                }
                return None;
            }
            Ok(Activation::NotYet { ask_again }) => ask_again,
            // The next reading of what exists tells more.
            Err(error) if !error.transient() => return None,
            Err(error) => error.retry_after().unwrap_or(Duration::from_secs(5)),
        };
        Some(wait.max(Duration::from_millis(10)))
    }
}

/// What a failure to make VIFs says of the next attempt.
fn fault(error: &DriverError) -> Fault {
    match (error.retry_after(), error.reason()) {
        (Some(hint), _) => Fault::Throttled(hint),
        (None, Reason::Quota | Reason::NoAddress) => Fault::Exhausted,
        (None, Reason::NotFound | Reason::Refused) if !error.ambiguous() => Fault::Refused,
        (None, _) => Fault::Failed,
    }
}

/// Answers those who wait for VIFs with these security groups that there are none to be had. It says nothing to others.
fn refuse(state: &mut State, key: &Arc<StockKey>, want: &Vec<SecurityGroupId>, error: &DriverError) {
    let Some(shelf) = state.shelves.get_mut(key) else { return };
    for hold in shelf.pool.dismiss(want) {
        if let Some(waiter) = state.waiters.remove(&hold) {
            // Who waits no more is owed nothing.
            drop(waiter.answer.send(Err(error.clone().settled())));
        }
    }
}

/// Asks from time to time whether a VIF is active, as often as the driver says, while the pool is there.
async fn activate(pool: Weak<Inner>, key: Arc<StockKey>, vif: Vif) {
    loop {
        let Some(inner) = pool.upgrade() else { return };
        let Some(wait) = inner.see(&key, &vif).await else { return };
        drop(inner);
        tokio::time::sleep(wait).await;
    }
}
