//! The calls of Octavia that the driver makes.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use staffetta_driver::{ListenerId, LoadBalancerId, PoolId};

use super::features::Features;
use super::wire::{
    LISTENER_FIELDS, LOAD_BALANCER_FIELDS, ListenerChange, ListenerTold, LoadBalancerChange,
    LoadBalancerTold, MEMBER_FIELDS, MONITOR_FIELDS, MemberTold, MonitorChange, MonitorTold, NewListener,
    NewLoadBalancer, NewMember, NewMonitor, NewPool, PoolChange, PoolTold, StatesTold,
};
use crate::cloud::{Call, Cloud, Service};
use crate::error::{OpenStackError, existing};

/// A filter of a list: names and values.
pub(super) type Filter = Vec<(&'static str, String)>;

/// Octavia.
#[derive(Clone, Debug)]
pub(super) struct Octavia {
    service: Service,
}

impl Octavia {
    pub(super) fn new(cloud: &Cloud) -> Self {
        Self { service: cloud.load_balancer() }
    }

    /// What this release can do.
    pub(super) async fn features(&self) -> Result<Features, OpenStackError> {
        Ok(Features::of(self.service.version().await?))
    }

    /// Makes a load balancer with all that hangs on it, or nothing.
    pub(super) async fn create(&self, new: &NewLoadBalancer<'_>) -> Result<LoadBalancerTold, OpenStackError> {
        let members =
            |listener: &NewListener| listener.default_pool.as_ref().map_or(0, |pool| pool.members.len());
        let things: usize = new.listeners.iter().map(|listener| 2 + members(listener)).sum();
        let call = self.service.post("make a load balancer", "loadbalancers");
        call.json(&json!({ "loadbalancer": new })).things(1 + things).answer_in("loadbalancer").await
    }

    /// The load balancers that pass the filter, without what hangs on them.
    pub(super) async fn load_balancers(
        &self,
        step: &'static str,
        filter: &Filter,
        fields: &[&str],
    ) -> Result<Vec<LoadBalancerTold>, OpenStackError> {
        let call = self.service.get(step, "loadbalancers").fields(fields);
        filtered(call, filter).list("loadbalancers").await
    }

    /// One load balancer without what hangs on it, if it exists.
    pub(super) async fn load_balancer(
        &self,
        step: &'static str,
        id: &LoadBalancerId,
        fields: &[&str],
    ) -> Result<Option<LoadBalancerTold>, OpenStackError> {
        let call = self.service.get(step, format!("loadbalancers/{id}")).fields(fields);
        existing(call.answer_in("loadbalancer").await)
    }

    /// The same with all fields.
    pub(super) async fn whole_load_balancer(
        &self,
        step: &'static str,
        id: &LoadBalancerId,
    ) -> Result<Option<LoadBalancerTold>, OpenStackError> {
        self.load_balancer(step, id, &LOAD_BALANCER_FIELDS).await
    }

    /// The listeners that pass the filter.
    pub(super) async fn listeners(
        &self,
        step: &'static str,
        filter: &Filter,
    ) -> Result<Vec<ListenerTold>, OpenStackError> {
        filtered(self.service.get(step, "listeners").fields(&LISTENER_FIELDS), filter).list("listeners").await
    }

    /// The pools that pass the filter. Of their members they have the ids.
    pub(super) async fn pools(
        &self,
        step: &'static str,
        filter: &Filter,
        fields: &[&str],
    ) -> Result<Vec<PoolTold>, OpenStackError> {
        filtered(self.service.get(step, "pools").fields(fields), filter).list("pools").await
    }

    /// The health monitors that pass the filter.
    pub(super) async fn monitors(
        &self,
        step: &'static str,
        filter: &Filter,
    ) -> Result<Vec<MonitorTold>, OpenStackError> {
        let call = self.service.get(step, "healthmonitors").fields(&MONITOR_FIELDS);
        filtered(call, filter).list("healthmonitors").await
    }

    /// The members of a pool; none when there is no such pool.
    pub(super) async fn members(&self, pool: &PoolId) -> Result<Option<Vec<MemberTold>>, OpenStackError> {
        let call = self.service.get("list the members of a pool", format!("pools/{pool}/members"));
        existing(call.fields(&MEMBER_FIELDS).list("members").await)
    }

    /// The members of all pools of a load balancer, without their subnets; none when there is no such load balancer.
    pub(super) async fn states(&self, id: &LoadBalancerId) -> Result<Option<StatesTold>, OpenStackError> {
        let call = self
            .service
            .get("read the members of a load balancer's pools", format!("loadbalancers/{id}/status"));
        existing(call.answer_in("statuses").await)
    }

    /// Changes a load balancer.
    pub(super) async fn change_load_balancer(
        &self,
        step: &'static str,
        id: &LoadBalancerId,
        change: &LoadBalancerChange<'_>,
    ) -> Result<LoadBalancerTold, OpenStackError> {
        let call = self.service.put(step, format!("loadbalancers/{id}"));
        call.json(&json!({ "loadbalancer": change })).answer_in("loadbalancer").await
    }

    /// Deletes a load balancer with all that hangs on it: false when there is none.
    pub(super) async fn delete_load_balancer(&self, id: &LoadBalancerId) -> Result<bool, OpenStackError> {
        let call = self.service.delete("release a load balancer", format!("loadbalancers/{id}"));
        existing(call.query("cascade", "true").done().await).map(|done| done.is_some())
    }

    pub(super) async fn create_listener(&self, new: &NewListener) -> Result<ListenerTold, OpenStackError> {
        self.make("make a listener", "listeners", "listener", new).await
    }

    pub(super) async fn change_listener(
        &self,
        id: &ListenerId,
        change: &ListenerChange,
    ) -> Result<(), OpenStackError> {
        let call = self.service.put("change a listener", format!("listeners/{id}"));
        call.json(&json!({ "listener": change })).done().await
    }

    /// Hangs a pool on a listener of the same load balancer.
    pub(super) async fn hang_pool(&self, listener: &ListenerId, pool: &PoolId) -> Result<(), OpenStackError> {
        let call = self.service.put("hang a pool on a listener", format!("listeners/{listener}"));
        call.json(&json!({ "listener": { "default_pool_id": pool } })).done().await
    }

    /// Deletes a listener.
    pub(super) async fn delete_listener(&self, id: &ListenerId) -> Result<(), OpenStackError> {
        self.service.delete("release a listener", format!("listeners/{id}")).done().await
    }

    pub(super) async fn create_pool(&self, new: &NewPool) -> Result<PoolTold, OpenStackError> {
        self.make("make a pool", "pools", "pool", new).await
    }

    pub(super) async fn change_pool(&self, id: &PoolId, change: &PoolChange) -> Result<(), OpenStackError> {
        let call = self.service.put("change a pool", format!("pools/{id}"));
        call.json(&json!({ "pool": change })).done().await
    }

    /// Deletes a pool with its members.
    pub(super) async fn delete_pool(&self, id: &PoolId) -> Result<(), OpenStackError> {
        self.service.delete("release a pool", format!("pools/{id}")).done().await
    }

    /// Makes these the members of a pool, all of them and nothing else.
    pub(super) async fn set_members(
        &self,
        pool: &PoolId,
        members: &[NewMember],
    ) -> Result<(), OpenStackError> {
        let call = self.service.put("set the members of a pool", format!("pools/{pool}/members"));
        call.json(&json!({ "members": members })).things(members.len()).done().await
    }

    /// The id of a pool's health monitor, if it has one.
    pub(super) async fn monitor_of(&self, pool: &PoolId) -> Result<Option<String>, OpenStackError> {
        let call = self.service.get("find the health monitor of a pool", format!("pools/{pool}"));
        let found: Option<PoolTold> =
            existing(call.fields(&["id", "healthmonitor_id"]).answer_in("pool").await)?;
        Ok(found.and_then(|pool| pool.healthmonitor_id))
    }

    pub(super) async fn create_monitor(&self, new: &NewMonitor) -> Result<(), OpenStackError> {
        let call = self.service.post("make a health monitor", "healthmonitors");
        call.json(&json!({ "healthmonitor": new })).done().await
    }

    pub(super) async fn change_monitor(
        &self,
        id: &str,
        change: &MonitorChange,
    ) -> Result<(), OpenStackError> {
        let call = self.service.put("change a health monitor", format!("healthmonitors/{id}"));
        call.json(&json!({ "healthmonitor": change })).done().await
    }

    /// Deletes a health monitor.
    pub(super) async fn delete_monitor(&self, id: &str) -> Result<(), OpenStackError> {
        self.service.delete("release a health monitor", format!("healthmonitors/{id}")).done().await
    }

    async fn make<T: DeserializeOwned>(
        &self,
        step: &'static str,
        collection: &'static str,
        key: &'static str,
        new: &(impl Serialize + Sync),
    ) -> Result<T, OpenStackError> {
        self.service.post(step, collection).json(&json!({ key: new })).answer_in(key).await
    }
}

fn filtered<'s>(call: Call<'s>, filter: &Filter) -> Call<'s> {
    filter.iter().fold(call, |call, (name, value)| call.query(*name, value))
}
