//! Hands VIFs out, and takes them back.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::Inner;
use super::figures::count;
use super::hand_out::{HandOut, Waiting};
use super::ports::{Hold, sorted};
use super::refusal::{STEP, not_leading, refusal};
use super::state::{Phase, Place, State, Waiter};
use super::work::Work;
use crate::error::{DriverError, Reason};
use crate::id::{SecurityGroupId, VifId};
use crate::owner::Owner;
use crate::pod_vif::VifRequest;
use crate::stock::StockKey;
use crate::vif::Vif;
use crate::warm_pool::{Take, Wait};

/// What comes of a request at once.
enum Taken {
    Now(Box<HandOut>),
    Later(Waiting, oneshot::Receiver<Result<HandOut, DriverError>>),
}

impl Taken {
    fn now(hand_out: HandOut) -> Self {
        Self::Now(Box::new(hand_out))
    }
}

impl Inner {
    pub(super) async fn request(self: &Arc<Self>, request: &VifRequest) -> Result<Vif, DriverError> {
        let key = Arc::new(StockKey::new(self.stock.host(request)?, request));
        let want = sorted(&request.security_groups);
        loop {
            let hand_out = match self.take(&key, request, &want)? {
                Taken::Now(hand_out) => *hand_out,
                Taken::Later(waiting, answer) => {
                    let answer = answer.await;
                    drop(waiting);
                    answer.map_err(|_| DriverError::new(Reason::Unavailable, STEP))??
                }
            };
            let Some(vif) = hand_out.vif.clone().filter(|_| hand_out.adapt) else {
                return hand_out.keep().ok_or_else(|| DriverError::new(Reason::Unavailable, STEP));
            };
            if !(self.may_act)() {
                return Err(not_leading());
            }
            match self.stock.adapt(&vif, &want).await {
                Ok(()) => {
                    if let Some(shelf) = self.state().shelves.get_mut(&key) {
                        shelf.pool.adapted(&vif.id, Some(&want));
                    }
                    return hand_out.keep().ok_or_else(|| DriverError::new(Reason::Unavailable, STEP));
                }
                // Somebody deleted it; the next one, then.
                Err(error) if error.reason() == Reason::NotFound => {
                    hand_out.lost();
                    self.suspect();
                }
                Err(error) => return Err(error.settled()),
            }
        }
    }

    fn take(
        self: &Arc<Self>,
        key: &Arc<StockKey>,
        request: &VifRequest,
        want: &Vec<SecurityGroupId>,
    ) -> Result<Taken, DriverError> {
        let (now, mut work) = (self.now(), Vec::new());
        let mut state = self.state();
        if !matches!(state.phase, Phase::Open) {
            return Err(DriverError::new(Reason::Unavailable, STEP)
                .detail("which VIFs exist, and which pods use them, is not known yet"));
        }
        let hold = state.next_hold();
        let shelf = state.shelf(key, self.policy.sizes(), self.policy.cool_down);
        shelf.subnets.clone_from(&request.subnets);
        if shelf.pool.is_draining() && self.nodes.may_have(&key.host) {
            shelf.pool.resume();
        }
        let owner = Arc::new(request.owner.clone());
        let taken = match shelf.pool.take(&hold, want, now) {
            Take::Wait(Wait::Growing) => {
                let (answer, answered) = oneshot::channel();
                state.waiters.insert(hold, Waiter { owner, answer });
                let waiting = Waiting { inner: Arc::clone(self), key: Arc::clone(key), hold };
                Ok(Taken::Later(waiting, answered))
            }
            Take::Wait(wait) => {
                shelf.pool.leave(&hold);
                Err(refusal(shelf, wait))
            }
            Take::Got(id) => {
                count(&self.counters.warm);
                self.hand_out(&mut state, key, hold, &owner, &id, false).map(Taken::now)
            }
            Take::Adapt(id) => {
                count(&self.counters.warm);
                self.hand_out(&mut state, key, hold, &owner, &id, true).map(Taken::now)
            }
        };
        self.turn(&mut state, key, &mut work);
        drop(state);
        self.start(work);
        taken
    }

    /// Takes a VIF that the warm pool chose off its shelf.
    fn hand_out(
        self: &Arc<Self>,
        state: &mut State,
        key: &Arc<StockKey>,
        hold: Hold,
        owner: &Arc<Owner>,
        id: &VifId,
        adapt: bool,
    ) -> Result<HandOut, DriverError> {
        let vif = state.shelves.get_mut(key).and_then(|shelf| shelf.vifs.remove(id));
        if vif.is_none() {
            state.lose(key, id);
            return Err(
                DriverError::new(Reason::Unavailable, STEP).detail(format!("nobody knows the VIF {id}"))
            );
        }
        state.hold(id, hold, owner);
        let (inner, key) = (Arc::clone(self), Arc::clone(key));
        Ok(HandOut { inner, key, hold, uid: owner.uid.clone(), vif, adapt })
    }

    /// Answers a request that waited: with a VIF, or why there is none.
    pub(super) fn serve(
        self: &Arc<Self>,
        state: &mut State,
        key: &Arc<StockKey>,
        hold: Hold,
        work: &mut Vec<Work>,
    ) {
        let now = self.now();
        let Some(shelf) = state.shelves.get_mut(key) else { return };
        let want = shelf.pool.waiting().find(|(waiting, _)| **waiting == hold).map(|(_, want)| want.clone());
        let (Some(want), Some(waiter)) = (want, state.waiters.remove(&hold)) else {
            shelf.pool.leave(&hold);
            return;
        };
        let answer = match shelf.pool.take(&hold, &want, now) {
            Take::Wait(wait) => {
                shelf.pool.leave(&hold);
                Err(refusal(shelf, wait))
            }
            Take::Got(id) => self.hand_out(state, key, hold, &waiter.owner, &id, false),
            Take::Adapt(id) => self.hand_out(state, key, hold, &waiter.owner, &id, true),
        };
        if answer.is_ok() {
            count(&self.counters.waited);
        }
        if let Err(Ok(undelivered)) = waiter.answer.send(answer) {
            work.push(Work::Undelivered(undelivered));
        }
    }

    /// The VIF is guarded otherwise from now on, or nobody knows how. To have no group at all is what no pod asks for: who names
    /// none wants those of the project.
    pub(super) fn regrouped(&self, id: &VifId, security_groups: Option<&[SecurityGroupId]>) {
        let mut state = self.state();
        let Some(Place { key, .. }) = state.places.get(id).cloned() else { return };
        let tag = security_groups.filter(|groups| !groups.is_empty()).map(sorted);
        if let Some(shelf) = state.shelves.get_mut(&key) {
            shelf.pool.changed(id, tag.as_ref());
        }
    }

    pub(super) async fn release(self: &Arc<Self>, owner: &Owner, vif: &Vif) -> Result<(), DriverError> {
        if self.give_back(owner, vif) { Ok(()) } else { self.vifs.release_vif(owner, vif).await }
    }

    /// Puts a VIF back on its shelf. Answers whether it has one: if it does and belongs to somebody else by now, or to
    /// nobody, it is left alone.
    fn give_back(self: &Arc<Self>, owner: &Owner, vif: &Vif) -> bool {
        let (now, mut work) = (self.now(), Vec::new());
        let mut state = self.state();
        let hold = state.let_go(&vif.id, &owner.uid);
        let Some(place) = state.places.get(&vif.id).cloned() else { return false };
        let key = Arc::clone(&place.key);
        if let (Some(hold), Some(shelf)) = (hold, state.shelves.get_mut(&key)) {
            shelf.pool.give_back(&hold, &vif.id, now);
            if shelf.pool.owners(&vif.id).next().is_none() {
                self.stock.came_back(&vif.id);
                let back = self.in_stock(Vif::clone(&place.told));
                shelf.pool.ready(&vif.id, back.active);
                shelf.vifs.insert(vif.id.clone(), back.clone());
                if place.is_of(vif) {
                    if !back.active && self.stock.is_active_unbound(&back) {
                        work.push(Work::Activate { key: Arc::clone(&key), vif: back });
                    }
                } else {
                    tracing::warn!(namespace = owner.namespace, name = owner.name, uid = %owner.uid, vif = %vif.id,
                        "the pod shows another VIF than it was handed; nobody else gets it");
                    shelf.pool.discard(&vif.id);
                }
            }
            self.turn(&mut state, &key, &mut work);
        }
        drop(state);
        self.start(work);
        true
    }

    /// The VIF as it is while no pod uses it.
    pub(super) fn in_stock(&self, vif: Vif) -> Vif {
        let active = vif.active && self.stock.is_active_unbound(&vif);
        Vif { active, ..vif }
    }
}
