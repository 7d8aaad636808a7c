//! Changes of listeners, pools and members. Each call of the driver makes at most one change, because a change makes the load balancer
//! immutable for a while.

use async_trait::async_trait;
use serde_json::json;
use staffetta_driver::{
    DriverError, Listener, ListenerChange, ListenerDriver, ListenerPort, ListenerSpec, LoadBalancer,
    LoadBalancerId, Pool, PoolId, Reason,
};

use super::LbaasV2Driver;
use super::request::{self, merged};
use super::tree;
use super::wire::{
    DETACHED_POOL_FIELDS, ListenerBody, LoadBalancerBody, MonitorBody, OctaviaResource, PoolBody,
};
use crate::error::{DriverResult, StepName};
use crate::text::is_well_formed;

#[async_trait]
impl ListenerDriver for LbaasV2Driver {
    async fn change_listener(
        &self,
        load_balancer: &LoadBalancer,
        change: &ListenerChange,
    ) -> DriverResult<LoadBalancer> {
        let at = change.at();
        let listener = match (change, load_balancer.listener(at)) {
            (ListenerChange::SetMembers(_, members), found) => {
                Some(self.set_members(load_balancer, at, found, members).await?)
            }
            (ListenerChange::Release(_), Some(found)) => self.release(load_balancer, found).await?,
            (ListenerChange::Release(_), None) => None,
            (ListenerChange::Ensure(spec), Some(found)) => {
                Some(self.update_listener(load_balancer, found.clone(), spec).await?)
            }
            (ListenerChange::Ensure(spec), None) => Some(self.create_listener(load_balancer, spec).await?),
        };
        Ok(load_balancer.with_listener(at, listener))
    }
}

impl LbaasV2Driver {
    /// Makes the first of these changes that brings a listener closer to its spec: its settings, then its pool, the settings of the pool,
    /// and the health monitor of the pool. Returns the listener after that change, or the same listener if none is necessary. Members are
    /// not compared.
    async fn update_listener(
        &self,
        load_balancer: &LoadBalancer,
        mut listener: Listener,
        spec: &ListenerSpec,
    ) -> DriverResult<Listener> {
        let id = &load_balancer.id;
        if !has_well_formed_ids(&listener) {
            let detail = format!("the listener {}", spec.at);
            return Err(DriverError::new(Reason::NotFound, ListenerBody::UPDATE).detail(detail));
        }
        let update = request::listener_update(&listener.settings, &spec.settings);
        if update != json!({}) {
            let call = self.octavia.update::<ListenerBody>(listener.id.as_str(), &update).done();
            self.provisioning.change(id, ListenerBody::UPDATE, call).await?;
            return Ok(Listener { settings: spec.settings.clone(), ..listener });
        }
        let Some(pool) = &mut listener.pool else {
            listener.pool = Some(self.add_pool(load_balancer, &listener, spec).await?);
            return Ok(listener);
        };
        let (settings, wanted) = (&mut pool.settings, &spec.pool.settings);
        if let Some(update) = request::changed_pool(settings, wanted) {
            let call = self.octavia.update::<PoolBody>(pool.id.as_str(), &update).done();
            self.provisioning.change(id, PoolBody::UPDATE, call).await?;
            (settings.algorithm, settings.persistence) = (wanted.algorithm, wanted.persistence);
            settings.disabled = false;
        } else if settings.monitor != wanted.monitor {
            self.change_monitor(id, &pool.id, spec).await?;
            pool.settings.monitor = wanted.monitor;
        }
        Ok(listener)
    }

    /// Deletes the pool of a listener, or a listener that has no pool. Returns the listener without its pool if the pool was deleted: the
    /// next call deletes the listener, as soon as the load balancer accepts another change. Returns `None` if the listener was deleted or
    /// did not exist, or if its ids or those of its pool are malformed.
    async fn release(
        &self,
        load_balancer: &LoadBalancer,
        listener: &Listener,
    ) -> DriverResult<Option<Listener>> {
        const STEP: &str = ListenerBody::DELETE;
        let id = &load_balancer.id;
        if !has_well_formed_ids(listener) {
            return Ok(None);
        }
        if let Some(pool) = &listener.pool {
            let call = self.octavia.delete::<PoolBody>(pool.id.as_str());
            let existed = self.provisioning.delete_part(id, STEP, call).await?;
            self.cache.members.remove(&pool.id);
            if existed {
                return Ok(Some(Listener { pool: None, ..listener.clone() }));
            }
        }
        let call = self.octavia.delete::<ListenerBody>(listener.id.as_str());
        self.provisioning.delete_part(id, STEP, call).await.map(|_| None)
    }

    /// Creates a listener without a pool. If it exists already, reads it instead.
    async fn create_listener(&self, balancer: &LoadBalancer, spec: &ListenerSpec) -> DriverResult<Listener> {
        const STEP: &str = ListenerBody::CREATE;
        let name = request::name(&balancer.name, spec.at);
        let body = merged(request::listener(&name, spec), json!({ "loadbalancer_id": balancer.id }));
        match self.provisioning.change(&balancer.id, STEP, self.octavia.create(body, 0)).await {
            Ok(body) => tree::listener(&body, None).ok_or_else(|| {
                DriverError::new(Reason::Unavailable, STEP).detail("Octavia created another protocol")
            }),
            // It exists: the response to its creation was lost, or it was created by hand.
            Err(error) if error.to_string().contains("already using protocol") => {
                self.read_listener(STEP, &balancer.id, spec.at).await?.ok_or(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads the listener of a load balancer at a protocol and port, or returns `None` if there is none.
    async fn read_listener(
        &self,
        step: StepName,
        id: &LoadBalancerId,
        at: ListenerPort,
    ) -> DriverResult<Option<Listener>> {
        let body = self.octavia.get(step, id.as_str(), LoadBalancerBody::FIELDS).await?;
        let Some(body) = body else { return Ok(None) };
        Ok(self.tree(&body).await?.and_then(|tree| tree.listener(at).cloned()))
    }

    /// Adds a pool to a listener. Attaches the pool that was created for this listener earlier, if there is one, because Octavia keeps the
    /// pool of a deleted listener. Otherwise creates a pool without members and monitor.
    async fn add_pool(
        &self,
        balancer: &LoadBalancer,
        listener: &Listener,
        spec: &ListenerSpec,
    ) -> DriverResult<Pool> {
        const ATTACH: &str = "attach a pool to a listener";
        let name = request::name(&balancer.name, spec.at);
        if let Some(pool) = self.detached_pool(balancer, &name, spec.at).await? {
            let update = json!({ "default_pool_id": pool });
            let call = self.octavia.update::<ListenerBody>(listener.id.as_str(), &update).done();
            self.provisioning.change(&balancer.id, ATTACH, call).await?;
            let found = self.read_listener(ATTACH, &balancer.id, listener.at).await;
            let pool = found.map_err(DriverError::maybe_applied)?.and_then(|found| found.pool);
            return pool.ok_or_else(|| DriverError::new(Reason::NotFound, ATTACH).detail("it was deleted"));
        }
        // Octavia accepts neither members nor a monitor in the creation of a single pool.
        let body = merged(request::pool(&name, spec), json!({ "listener_id": listener.id }));
        let call = self.octavia.create(body, 0);
        let body = self.provisioning.change(&balancer.id, PoolBody::CREATE, call).await?;
        Ok(tree::pool(&body, None, Vec::new()))
    }

    /// Returns a pool of this load balancer that has this name and the protocol of `at`, and belongs to no listener, or `None` if there is
    /// none.
    async fn detached_pool(
        &self,
        balancer: &LoadBalancer,
        name: &str,
        at: ListenerPort,
    ) -> DriverResult<Option<PoolId>> {
        let filter = vec![("loadbalancer_id", balancer.id.to_string()), ("name", name.to_owned())];
        let step = "find a pool without a listener";
        let found: Vec<PoolBody> = self.octavia.list(step, &filter, DETACHED_POOL_FIELDS).await?;
        let is_ours = |pool: &PoolBody| {
            pool.listeners.is_empty()
                && pool.loadbalancers.iter().any(|of| of.id == balancer.id)
                && pool.name == name
                && pool.protocol == at.protocol.to_string()
                && is_well_formed(pool.id.as_str())
        };
        Ok(found.into_iter().find(is_ours).map(|pool| pool.id))
    }

    /// Creates, updates or deletes the health monitor of a pool according to the spec.
    async fn change_monitor(
        &self,
        id: &LoadBalancerId,
        pool: &PoolId,
        spec: &ListenerSpec,
    ) -> DriverResult<()> {
        let fields = "id healthmonitor_id";
        let found = self.octavia.get("find the health monitor of a pool", pool.as_str(), fields).await?;
        let monitor = found.and_then(|pool: PoolBody| pool.healthmonitor_id);
        match (monitor, spec.pool.settings.monitor) {
            (None, None) => Ok(()),
            (Some(monitor), None) => {
                let call = self.octavia.delete::<MonitorBody>(&monitor);
                self.provisioning.delete_part(id, MonitorBody::DELETE, call).await.map(drop)
            }
            (None, Some(wanted)) => {
                let body = merged(request::monitor(spec.at.protocol, wanted), json!({ "pool_id": pool }));
                let call = self.octavia.create::<MonitorBody>(body, 0);
                self.provisioning.change(id, MonitorBody::CREATE, call).await.map(drop)
            }
            (Some(monitor), Some(wanted)) => {
                // It may have been disabled.
                let update = merged(request::monitor_update(wanted), json!({ "admin_state_up": true }));
                let call = self.octavia.update::<MonitorBody>(&monitor, &update).done();
                self.provisioning.change(id, MonitorBody::UPDATE, call).await
            }
        }
    }
}

/// Returns `true` if the ids of the listener and its pool have the form of ids, so that they may become part of a URL.
pub(super) fn has_well_formed_ids(listener: &Listener) -> bool {
    let pool = listener.pool.as_ref().map(|pool| pool.id.as_str());
    [Some(listener.id.as_str()), pool].into_iter().flatten().all(is_well_formed)
}
