//! Hands VIFs out to pods and takes them back.

use std::sync::Arc;

use async_trait::async_trait;
use staffetta_driver::{
    Activation, DriverError, Owned, Owner, PodVifDriver, PoolClaim, Reason, SecurityGroupId, Vif, VifId,
    VifPoolDriver, VifPoolKey, VifRequest,
};
use tokio::sync::oneshot;

use super::state::{Hold, HolderClaim, KeyPool, Place, StartupPhase, VifPoolState, sorted};
use super::{Inner, WarmVifPool};
use crate::pool::{Take, Wait};

/// The step that failed, in the errors of requests for a VIF.
const STEP: &str = "take a VIF from the pool";

#[async_trait]
impl PodVifDriver for WarmVifPool {
    async fn request_vif(&self, request: &VifRequest) -> Result<Vif, DriverError> {
        let inner = &self.inner;
        let key = Arc::new(VifPoolKey::new(inner.bulk.host(request)?, request));
        let want = sorted(&request.security_groups);
        let hold = inner.state.lock().next_number();
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
                        return Ok(inner.as_unbound(&vif));
                    }
                }
            }
        }
    }

    async fn release_vif(&self, owner: &Owner, vif: &Vif) -> Result<(), DriverError> {
        let pooled = self.inner.give_back(owner, vif);
        if pooled { Ok(()) } else { self.inner.vifs.release_vif(owner, vif).await }
    }

    async fn activate_vif(&self, owner: &Owner, vif: &Vif) -> Result<Activation, DriverError> {
        if self.claim(owner, vif) == PoolClaim::Refused {
            let detail = format!("the pool did not hand out VIF {} to this pod", vif.id);
            return Err(DriverError::new(Reason::Refused, "activate a VIF").detail(detail));
        }
        self.inner.activate(owner, vif).await
    }

    async fn unmarked_vifs(&self) -> Result<Vec<Owned<Vif>>, DriverError> {
        self.inner.vifs.unmarked_vifs().await
    }

    /// Returns the VIFs that the VIF driver lists. With an `owner`, adds the pooled VIFs that it holds, as they were listed last. Without
    /// an `owner`, pooled VIFs have the pods that hold them as their owners, but only after the pool was started.
    async fn vifs(&self, owner: Option<&Owner>) -> Result<Vec<Owned<Vif>>, DriverError> {
        let mut marked = self.inner.vifs.vifs(owner).await?;
        let mut state = self.inner.state.lock();
        if let Some(owner) = owner {
            for id in state.held_by(&owner.uid) {
                if let Some(Place { vif, .. }) = state.places.get(&id) {
                    marked.push(Owned { owner: Some(owner.clone()), resource: Vif::clone(vif) });
                } else {
                    state.end_hold(&id, &owner.uid);
                }
            }
        } else if matches!(state.phase, StartupPhase::Open) {
            for Owned { owner, resource } in marked.iter_mut().filter(|marked| marked.owner.is_none()) {
                *owner = state.holder(&resource.id).cloned();
            }
        }
        Ok(marked)
    }
}

/// A request for a VIF that is in progress. If it is dropped before it succeeds, the VIF that it took is free again at once, and it
/// no longer waits for one.
struct VifClaim<'r> {
    inner: &'r Arc<Inner>,
    key: Arc<VifPoolKey>,
    request: &'r VifRequest,
    /// The number under which the pool records that the pod holds or waits for a VIF; 0 once the request has succeeded.
    hold: Hold,
    /// The VIF that was taken for the pod; `None` if none was taken yet.
    vif: Option<VifId>,
    /// `true` while the driver changes the security groups of the VIF for this request.
    adapting: bool,
    /// `true` if the request had to wait for a VIF.
    waited: bool,
}

/// The result of an attempt to take a VIF.
enum Taken {
    /// The VIF was taken. The flag is `true` if its security groups must be changed first.
    Vif(Arc<Vif>, bool),
    /// No VIF is free. The caller waits for the result on the channel: after `Ok` it tries again, and an error ends the request.
    Wait(oneshot::Receiver<Result<(), DriverError>>),
}

impl Drop for VifClaim<'_> {
    fn drop(&mut self) {
        if self.hold == 0 {
            return;
        }
        let now = self.inner.now();
        let mut state = self.inner.state.lock();
        if let Some(id) = &self.vif {
            state.end_hold(id, &self.request.owner.uid);
        }
        let Some(pool) = state.pools.get_mut(&self.key) else { return };
        pool.waiters.remove(&self.hold);
        if let Some(id) = self.vif.as_ref().filter(|_| self.adapting) {
            // The call may have taken effect, or will, whatever a listing showed meanwhile.
            pool.warm.changed(id, None);
        }
        let returned = pool.warm.undo_take(&self.hold, now).is_some();
        drop(state);
        if returned {
            self.inner.wake.notify_one();
        }
    }
}

impl VifClaim<'_> {
    /// Takes a free VIF, or registers the request as waiting for one that is being created. Fails if neither
    /// is possible, or if the pool is not started.
    fn take(&mut self, want: &Vec<SecurityGroupId>) -> Result<Taken, DriverError> {
        let (inner, now) = (self.inner, self.inner.now());
        let mut state = inner.state.lock();
        if !matches!(state.phase, StartupPhase::Open) {
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

    /// Records that the pod holds the VIF `id`, and returns the VIF. `adapt` is `true` if its security groups must be changed first. Fails
    /// if the VIF was deleted meanwhile.
    fn hold(&mut self, state: &mut VifPoolState, id: VifId, adapt: bool) -> Result<Taken, DriverError> {
        let Some(Place { vif, .. }) = state.places.get(&id).cloned() else {
            state.lose(&self.key, &id);
            return Err(DriverError::new(Reason::Unavailable, STEP).detail(format!("VIF {id} was deleted")));
        };
        self.adapting = adapt;
        self.inner
            .count(|counters| *if self.waited { &mut counters.waited } else { &mut counters.warm } += 1);
        state.hold(&id, self.hold, &self.request.owner, HolderClaim::HandedOut);
        self.vif = Some(id);
        Ok(Taken::Vif(vif, adapt))
    }

    /// Changes the security groups of the VIF. Returns `false` if the VIF does not exist any more; it is then removed from the
    /// pool.
    async fn adapt(&mut self, vif: &Vif, want: &Vec<SecurityGroupId>) -> Result<bool, DriverError> {
        if !(self.inner.is_leader)() {
            self.adapting = false;
            return Err(not_leading());
        }
        let changed = self.inner.bulk.set_security_groups(vif, want).await;
        let mut state = self.inner.state.lock();
        match changed {
            Ok(()) => {
                if let Some(pool) = state.pools.get_mut(&self.key) {
                    pool.warm.changed(&vif.id, Some(want));
                }
                Ok(true)
            }
            Err(error) if error.reason() == Reason::NotFound => {
                (self.vif, self.adapting) = (None, false);
                state.end_hold(&vif.id, &self.request.owner.uid);
                state.lose(&self.key, &vif.id);
                drop(state);
                self.inner.request_listing();
                Ok(false)
            }
            Err(error) => Err(error.unambiguous()),
        }
    }
}

impl Inner {
    /// Wakes the waiting requests that need not wait any longer: either a VIF is free for them, or they get
    /// the error that explains why there is none.
    pub(super) fn wake_waiting(&self, pool: &mut KeyPool) {
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

    /// Takes a VIF back from the pod `owner`. Returns `false` if the VIF does not belong to the pool. If it does, but `owner` does not hold
    /// it, returns `true` and does nothing.
    fn give_back(self: &Arc<Self>, owner: &Owner, vif: &Vif) -> bool {
        let now = self.now();
        let mut state = self.state.lock();
        let hold = state.end_hold(&vif.id, &owner.uid);
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

/// Returns the error of a request that gets no VIF, with the delay before it may be repeated if that is known.
fn refusal(pool: &KeyPool, wait: Wait) -> DriverError {
    let unavailable = || DriverError::new(Reason::Unavailable, STEP);
    match wait {
        Wait::BackingOff(remaining) => {
            pool.failure.clone().unwrap_or_else(unavailable).unambiguous().after(remaining)
        }
        Wait::Cooling(remaining) => {
            unavailable().detail("all released VIFs are still cooling down").after(remaining)
        }
        Wait::Draining => unavailable().detail("the node is gone"),
        Wait::Growing | Wait::Full => unavailable(),
    }
}

/// Returns the error of a request to a process that is no longer the leader.
pub(super) fn not_leading() -> DriverError {
    DriverError::new(Reason::Unavailable, STEP).detail("this process is no longer the leader")
}
