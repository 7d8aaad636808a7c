//! Changes what hangs on a load balancer: one change a call, for each keeps the load balancer busy.

use staffetta_driver::{
    DriverError, Listener, ListenerPort, ListenerSpec, LoadBalancer, LoadBalancerId, Member, MemberSpec,
    Pool, PoolId, Reason,
};

use super::LbaasV2Driver;
use super::reading::members_told;
use super::tree;
use super::wire::{
    ListenerChange, MonitorChange, NewListener, NewMember, NewMonitor, NewPool, PoolTold, SPARE_POOL_FIELDS,
};
use crate::cloud::well_formed;
use crate::error::OpenStackError;

impl LbaasV2Driver {
    /// Takes the next step towards the listener that is wanted, and answers what stands then.
    pub(super) async fn advance(
        &self,
        balancer: &LoadBalancer,
        spec: &ListenerSpec,
    ) -> Result<Listener, DriverError> {
        const STEP: &str = "change a listener";
        let name = tree::name(&balancer.name, spec.at);
        let Some(listener) = balancer.listener(spec.at).cloned() else {
            return self.make_listener(balancer, &name, spec).await;
        };
        if !all_well_formed(&listener) {
            return Err(DriverError::new(Reason::NotFound, STEP).detail(format!("the listener {}", spec.at)));
        }
        let change = tree::listener_change(&listener.settings, &spec.settings);
        if change != ListenerChange::default() {
            let call = self.octavia.change_listener(&listener.id, &change);
            self.changed(&balancer.id, STEP, call).await?;
            return Ok(Listener { settings: spec.settings.clone(), ..listener });
        }
        let pool = match listener.pool {
            None => Some(self.make_pool(balancer, &listener, &name, spec).await?),
            Some(pool) => Some(self.advance_pool(balancer, pool, spec).await?),
        };
        Ok(Listener { pool, ..listener })
    }

    async fn make_listener(
        &self,
        balancer: &LoadBalancer,
        name: &str,
        spec: &ListenerSpec,
    ) -> Result<Listener, DriverError> {
        const STEP: &str = "make a listener";
        let new =
            NewListener { loadbalancer_id: Some(balancer.id.clone()), ..tree::new_listener(name, spec) };
        match self.changed(&balancer.id, STEP, self.octavia.create_listener(&new)).await {
            Ok(told) => {
                let made = tree::listener(&told, None);
                made.ok_or_else(|| {
                    DriverError::new(Reason::Unavailable, STEP).detail("Octavia made another one")
                })
            }
            // Somebody made it, or the answer to its making was lost: it is there.
            Err(error) if error.to_string().contains("already using protocol") => {
                self.standing_listener(STEP, &balancer.id, spec.at).await?.ok_or(error)
            }
            Err(error) => Err(error),
        }
    }

    /// The listener that stands there, with its pool.
    async fn standing_listener(
        &self,
        step: &'static str,
        id: &LoadBalancerId,
        at: ListenerPort,
    ) -> Result<Option<Listener>, DriverError> {
        let Some(told) = self.octavia.whole_load_balancer(step, id).await? else { return Ok(None) };
        let tree = self.tree(&told).await?;
        Ok(tree.and_then(|tree| tree.listener(at).cloned()))
    }

    /// Hangs the pool that was made for this listener on it, where one is left: Octavia keeps the pool of a listener that somebody
    /// removed. Where there is none, it is made.
    async fn make_pool(
        &self,
        balancer: &LoadBalancer,
        listener: &Listener,
        name: &str,
        spec: &ListenerSpec,
    ) -> Result<Pool, DriverError> {
        if let Some(spare) = self.spare_pool(balancer, name, spec.at).await? {
            return self.hang_pool(balancer, listener, &spare).await;
        }
        // Octavia takes neither members nor a monitor with a pool that is made by itself.
        let new = NewPool {
            listener_id: Some(listener.id.clone()),
            healthmonitor: None,
            ..tree::new_pool(name, spec)
        };
        let told = self.changed(&balancer.id, "make a pool", self.octavia.create_pool(&new)).await?;
        Ok(tree::pool(&told, None, Vec::new()))
    }

    /// A pool of this load balancer that bears the name of ours for that port, and hangs on no listener.
    async fn spare_pool(
        &self,
        balancer: &LoadBalancer,
        name: &str,
        at: ListenerPort,
    ) -> Result<Option<PoolId>, DriverError> {
        let name = tree::cut(name);
        let filter = vec![("loadbalancer_id", balancer.id.to_string()), ("name", name.clone())];
        let step = "find a pool that hangs on no listener";
        let found = self.octavia.pools(step, &filter, &SPARE_POOL_FIELDS).await?;
        let is_ours = |pool: &PoolTold| {
            pool.listeners.is_empty()
                && pool.loadbalancers.iter().any(|of| of.id == balancer.id)
                && pool.name == name
                && pool.protocol == tree::protocol(at.protocol)
                && well_formed(pool.id.as_str())
        };
        Ok(found.into_iter().find(is_ours).map(|pool| pool.id))
    }

    /// Hangs a pool on a listener, and answers it as it is by now.
    async fn hang_pool(
        &self,
        balancer: &LoadBalancer,
        listener: &Listener,
        pool: &PoolId,
    ) -> Result<Pool, DriverError> {
        const STEP: &str = "hang a pool on a listener";
        self.changed(&balancer.id, STEP, self.octavia.hang_pool(&listener.id, pool)).await?;
        let found = self.standing_listener(STEP, &balancer.id, listener.at).await;
        let pool = found.map_err(DriverError::maybe_done)?.and_then(|found| found.pool);
        pool.ok_or_else(|| DriverError::new(Reason::NotFound, STEP).detail("somebody removed it"))
    }

    async fn advance_pool(
        &self,
        balancer: &LoadBalancer,
        mut pool: Pool,
        spec: &ListenerSpec,
    ) -> Result<Pool, DriverError> {
        let wanted = &spec.pool.settings;
        let settled =
            (pool.settings.algorithm, pool.settings.persistence) == (wanted.algorithm, wanted.persistence);
        if !settled || pool.settings.disabled {
            let change = tree::pool_change(&pool.settings, wanted);
            let call = self.octavia.change_pool(&pool.id, &change);
            self.changed(&balancer.id, "change a pool", call).await?;
            (pool.settings.algorithm, pool.settings.persistence) = (wanted.algorithm, wanted.persistence);
            pool.settings.disabled = false;
        } else if pool.settings.monitor != wanted.monitor {
            self.change_monitor(balancer, &pool, spec).await?;
            pool.settings.monitor = wanted.monitor;
        }
        Ok(pool)
    }

    async fn change_monitor(
        &self,
        balancer: &LoadBalancer,
        pool: &Pool,
        spec: &ListenerSpec,
    ) -> Result<(), DriverError> {
        let (id, step) = (&balancer.id, "change a health monitor");
        match (self.octavia.monitor_of(&pool.id).await?, spec.pool.settings.monitor) {
            (None, None) => Ok(()),
            (Some(monitor), None) => {
                self.released(id, step, self.octavia.delete_monitor(&monitor)).await.map(drop)
            }
            (None, Some(wanted)) => {
                let new = tree::new_monitor(spec.at.protocol, wanted);
                let new = NewMonitor { pool_id: Some(pool.id.clone()), ..new };
                self.changed(id, step, self.octavia.create_monitor(&new)).await
            }
            (Some(monitor), Some(wanted)) => {
                // It may be that somebody switched it off.
                let change = MonitorChange { admin_state_up: Some(true), ..tree::monitor_change(wanted) };
                self.changed(id, step, self.octavia.change_monitor(&monitor, &change)).await
            }
        }
    }

    /// Makes these the members of a pool, and answers them with their ids. These are read only where a member is new. One that is to
    /// be reached through another subnet goes first, for Octavia never changes that of a member; it is missing in the answer.
    pub(super) async fn replace_members(
        &self,
        balancer: &LoadBalancer,
        pool: &PoolId,
        members: &[MemberSpec],
    ) -> Result<Vec<Member>, DriverError> {
        const STEP: &str = "set the members of a pool";
        let missing = || DriverError::new(Reason::NotFound, STEP).detail(format!("pool {pool}"));
        if !well_formed(pool.as_str()) {
            return Err(missing());
        }
        let pools = balancer.listeners.iter().filter_map(|listener| listener.pool.as_ref());
        let present = pools.filter(|present| present.id == *pool).flat_map(|present| &present.members);
        let present: Vec<&Member> = present.collect();
        let stays = |wanted: &&MemberSpec| {
            let same = |member: &&Member| (member.spec.ip, member.spec.port) == (wanted.ip, wanted.port);
            present.iter().copied().find(same).is_none_or(|member| member.spec.subnet == wanted.subnet)
        };
        let members: Vec<&MemberSpec> = members.iter().filter(stays).collect();
        let wanted: Vec<NewMember> = members.iter().map(|member| tree::new_member(member)).collect();
        let set = self.changed(&balancer.id, STEP, self.octavia.set_members(pool, &wanted)).await;
        if let Err(error) = set {
            self.memory.forget_members(pool);
            return Err(error);
        }
        let kept = members.iter().map(|wanted| {
            let same = |member: &&&Member| {
                (member.spec.ip, member.spec.port) == (wanted.ip, wanted.port)
                    && well_formed(member.id.as_str())
            };
            let kept = present.iter().find(same)?;
            Some(Member { id: kept.id.clone(), spec: (*wanted).clone() })
        });
        let members = if let Some(kept) = kept.collect::<Option<Vec<_>>>() {
            kept
        } else {
            // Those that are set already must not be set again because their ids could not be read.
            self.memory.forget_members(pool);
            let told =
                self.octavia.members(pool).await.map_err(|error| DriverError::from(error).maybe_done())?;
            let mut told = told.ok_or_else(missing)?;
            // A member that goes is told of until it is gone.
            told.retain(|told| {
                members
                    .iter()
                    .any(|wanted| (Some(wanted.ip), wanted.port) == (told.address, told.protocol_port))
            });
            members_told(&told, &balancer.subnet)
        };
        self.memory.remember(pool, &members);
        Ok(members)
    }

    /// Makes a change of a load balancer that takes one, as far as is known. From then on it is busy.
    pub(super) async fn changed<T>(
        &self,
        id: &LoadBalancerId,
        step: &'static str,
        call: impl Future<Output = Result<T, OpenStackError>>,
    ) -> Result<T, DriverError> {
        self.waiting.takes(id, step).await?;
        match call.await {
            Ok(answer) => {
                self.waiting.changed(id);
                Ok(answer)
            }
            Err(error) => Err(self.explained(id, step, error).await),
        }
    }

    /// A refusal that says no more than that the load balancer is not to be changed is told by its state.
    pub(super) async fn explained(
        &self,
        id: &LoadBalancerId,
        step: &'static str,
        error: OpenStackError,
    ) -> DriverError {
        let refusal = error.refusal().filter(|refusal| refusal.status == 409);
        let immutable = refusal.is_some_and(|refusal| {
            refusal.message.contains("immutable") || refusal.message.contains("Invalid state")
        });
        if immutable { self.waiting.refused(id, step).await } else { error.into() }
    }
}

/// Whether the listener and its pool have ids that may stand in a path.
pub(super) fn all_well_formed(listener: &Listener) -> bool {
    let ids = [Some(listener.id.as_str()), listener.pool.as_ref().map(|pool| pool.id.as_str())];
    ids.into_iter().flatten().all(well_formed)
}
