//! Hands VIFs out, and takes them back.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::oneshot;

use super::state::{Hold, KeyPool, Phase, Place, State, sorted};
use super::{Inner, WarmVifPool};
use crate::error::{DriverError, Reason};
use crate::id::{SecurityGroupId, VifId};
use crate::owner::{Owned, Owner};
use crate::pod::{Activation, PodVifDriver, VifRequest};
use crate::pool::{Take, Wait};
use crate::vif::Vif;
use crate::vif_pool::VifPoolKey;

const STEP: &str = "take a VIF from the pool";

#[async_trait]
impl PodVifDriver for WarmVifPool {
    async fn request_vif(&self, request: &VifRequest) -> Result<Vif, DriverError> {
        let inner = &self.inner;
        let key = Arc::new(VifPoolKey::new(inner.bulk.host(request)?, request));
        let want = sorted(&request.security_groups);
        let hold = inner.state().next_number();
        let mut claim = VifClaim { inner, key, request, hold, vif: None, adapting: false, waited: false };
        loop {
            match claim.take(&want)? {
                Taken::Wait(woken) => {
                    woken.await.map_err(|_| DriverError::new(Reason::Unavailable, STEP))??;
                    claim.waited = true;
                }
                Taken::Vif(vif, adapt) => {
                    if !adapt || claim.adapt(&vif, &want).await? {
                        claim.hold = 0;
                        return Ok(inner.unbound(&vif));
                    }
                }
            }
        }
    }

    async fn release_vif(&self, owner: &Owner, vif: &Vif) -> Result<(), DriverError> {
        let pooled = self.inner.give_back(owner, vif);
        if pooled { Ok(()) } else { self.inner.vifs.release_vif(owner, vif).await }
    }

    async fn activate_vif(&self, vif: &Vif) -> Result<Activation, DriverError> {
        self.inner.activate(vif).await
    }

    /// The VIFs of the pool are those of its last listing; all of them have their owners once it is open.
    async fn vifs(&self, owner: Option<&Owner>) -> Result<Vec<Owned<Vif>>, DriverError> {
        let mut marked = self.inner.vifs.vifs(owner).await?;
        let mut state = self.inner.state();
        if let Some(owner) = owner {
            for id in state.by_owner.get(&owner.uid).cloned().unwrap_or_default() {
                if let Some(Place { vif, .. }) = state.places.get(&id) {
                    marked.push(Owned { owner: Some(owner.clone()), thing: Vif::clone(vif) });
                } else {
                    state.let_go(&id, &owner.uid);
                }
            }
        } else if matches!(state.phase, Phase::Open) {
            for Owned { owner, thing } in marked.iter_mut().filter(|marked| marked.owner.is_none()) {
                let holder = state.holders.get(&thing.id).and_then(|holders| holders.first());
                *owner = holder.map(|holder| Owner::clone(&holder.owner));
            }
        }
        Ok(marked)
    }
}

/// A request in progress. If it ends early, its VIF is free again at once, and it waits no longer.
struct VifClaim<'r> {
    inner: &'r Arc<Inner>,
    key: Arc<VifPoolKey>,
    request: &'r VifRequest,
    /// 0 at its end.
    hold: Hold,
    /// The VIF that the pod holds by now.
    vif: Option<VifId>,
    /// `true` while the security groups of the VIF are being changed.
    adapting: bool,
    waited: bool,
}

/// The result of taking a VIF.
enum Taken {
    /// The VIF, and whether its security groups must be changed first.
    Vif(Arc<Vif>, bool),
    /// Wait, and take again.
    Wait(oneshot::Receiver<Result<(), DriverError>>),
}

impl Drop for VifClaim<'_> {
    fn drop(&mut self) {
        if self.hold == 0 {
            return;
        }
        let now = self.inner.now();
        let mut state = self.inner.state();
        if let Some(id) = &self.vif {
            state.let_go(id, &self.request.owner.uid);
        }
        let Some(pool) = state.pools.get_mut(&self.key) else { return };
        pool.waiters.remove(&self.hold);
        if let Some(id) = self.vif.as_ref().filter(|_| self.adapting) {
            // The call may have taken effect, or will, whatever a listing showed meanwhile.
            pool.warm.changed(id, None);
        }
        let returned = pool.warm.put_back(&self.hold, now).is_some();
        drop(state);
        if returned {
            self.inner.wake.notify_one();
        }
    }
}

impl VifClaim<'_> {
    /// Takes a VIF, or waits for one.
    fn take(&mut self, want: &Vec<SecurityGroupId>) -> Result<Taken, DriverError> {
        let (inner, now) = (self.inner, self.inner.now());
        let mut state = inner.state();
        if !matches!(state.phase, Phase::Open) {
            let detail =
                "the pool is starting: the existing VIFs, or the pods that use them, have not been read yet";
            return Err(DriverError::new(Reason::Unavailable, STEP).detail(detail));
        }
        let pool = state.pool(&self.key, &inner.policy);
        pool.subnets.clone_from(&self.request.subnets);
        if pool.warm.is_draining() && inner.nodes.may_contain(&self.key.host) {
            pool.warm.resume();
        }
        let answer = match pool.warm.take(&self.hold, want, now) {
            Take::Wait(Wait::Growing) => {
                let (waker, woken) = oneshot::channel();
                pool.waiters.insert(self.hold, waker);
                Ok(Taken::Wait(woken))
            }
            Take::Wait(wait) => {
                pool.warm.leave(&self.hold);
                Err(refusal(pool, wait))
            }
            Take::Got(id) => self.hold(&mut state, id, false),
            Take::Adapt(id) => self.hold(&mut state, id, true),
        };
        inner.reconcile(&mut state, &self.key);
        answer
    }

    /// Records that the pod holds the VIF.
    fn hold(&mut self, state: &mut State, id: VifId, adapt: bool) -> Result<Taken, DriverError> {
        let Some(Place { vif, .. }) = state.places.get(&id).cloned() else {
            state.lose(&self.key, &id);
            return Err(DriverError::new(Reason::Unavailable, STEP).detail(format!("VIF {id} was deleted")));
        };
        self.adapting = adapt;
        self.inner
            .count(|counters| *if self.waited { &mut counters.waited } else { &mut counters.warm } += 1);
        state.hold(&id, self.hold, &self.request.owner, None);
        self.vif = Some(id);
        Ok(Taken::Vif(vif, adapt))
    }

    /// Changes the security groups of the VIF. Returns `false` if it was deleted from outside, and is no longer taken.
    async fn adapt(&mut self, vif: &Vif, want: &Vec<SecurityGroupId>) -> Result<bool, DriverError> {
        if !(self.inner.is_leader)() {
            self.adapting = false;
            return Err(not_leading());
        }
        let changed = self.inner.bulk.set_security_groups(vif, want).await;
        let mut state = self.inner.state();
        match changed {
            Ok(()) => {
                if let Some(pool) = state.pools.get_mut(&self.key) {
                    pool.warm.changed(&vif.id, Some(want));
                }
                Ok(true)
            }
            Err(error) if error.reason() == Reason::NotFound => {
                (self.vif, self.adapting) = (None, false);
                state.let_go(&vif.id, &self.request.owner.uid);
                state.lose(&self.key, &vif.id);
                drop(state);
                self.inner.suspect();
                Ok(false)
            }
            Err(error) => Err(error.unambiguous()),
        }
    }
}

impl Inner {
    /// Gives the waiting requests their VIFs, or the reason why there is none.
    pub(super) fn serve(&self, pool: &mut KeyPool) {
        let now = self.now();
        for (hold, want) in pool.warm.tick(now) {
            let answer = match pool.warm.take(&hold, &want, now) {
                Take::Wait(wait) => {
                    pool.warm.leave(&hold);
                    Err(refusal(pool, wait))
                }
                Take::Got(_) | Take::Adapt(_) => Ok(()),
            };
            if let Some(waker) = pool.waiters.remove(&hold) {
                // The claim of a request that has ended puts its VIF back.
                drop(waker.send(answer));
            }
        }
    }

    /// Takes a VIF back. Returns `false` if it is not of the pool. If `owner` does not hold it, it is left alone.
    fn give_back(self: &Arc<Self>, owner: &Owner, vif: &Vif) -> bool {
        let now = self.now();
        let mut state = self.state();
        let hold = state.let_go(&vif.id, &owner.uid);
        let Some(place) = state.places.get(&vif.id).cloned() else { return false };
        if let (Some(hold), Some(pool)) = (hold, state.pools.get_mut(&place.key)) {
            pool.warm.give_back(&hold, &vif.id, now);
            if !pool.warm.is_used(&vif.id) {
                self.vifs.vif_returned(&vif.id);
                if place.is_of(vif) {
                    self.prepare(pool, &place);
                } else {
                    tracing::warn!(namespace = owner.namespace, name = owner.name, uid = %owner.uid, vif = %vif.id,
                        "the annotation of the pod does not match the VIF that the pool handed out; the VIF is deleted");
                    pool.warm.discard(&vif.id);
                }
            }
            self.reconcile(&mut state, &place.key);
        }
        true
    }
}

/// Returns the error of a request that gets no VIF, with the delay before it is repeated.
fn refusal(pool: &KeyPool, wait: Wait) -> DriverError {
    let unavailable = || DriverError::new(Reason::Unavailable, STEP);
    match wait {
        Wait::Pressed(remaining) => {
            pool.failure.clone().unwrap_or_else(unavailable).unambiguous().after(remaining)
        }
        Wait::Cooling(remaining) => {
            unavailable().detail("all released VIFs are still cooling down").after(remaining)
        }
        Wait::Draining => unavailable().detail("the node is gone"),
        Wait::Growing | Wait::Full => unavailable(),
    }
}

/// Returns the error of a process that is no longer the leader.
pub(super) fn not_leading() -> DriverError {
    DriverError::new(Reason::Unavailable, STEP).detail("this process is no longer the leader")
}
