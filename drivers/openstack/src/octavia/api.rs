//! The calls of Octavia's API that the driver makes.

use serde_json::{Value, json};
use staffetta_driver::{LoadBalancerId, MemberId, PoolId, ProjectId};

use super::features::{Features, Filter};
use super::wire::{LoadBalancerBody, MEMBER_FIELDS, MemberBody, OctaviaResource, StatusTreeBody};
use crate::cloud::{ApiCall, Cloud, Service};
use crate::error::{Result, StepName, existing};

/// The operation that errors of changes of the members of a pool name.
pub(super) const SET_MEMBERS: StepName = "set the members of a pool";

/// The client of Octavia, with one method for each call that the driver makes.
#[derive(Clone, Debug)]
pub(super) struct OctaviaApi {
    service: Service,
}

impl OctaviaApi {
    /// Creates the client for the Octavia of `cloud`.
    pub(super) fn new(cloud: &Cloud) -> Self {
        Self { service: cloud.load_balancer() }
    }

    /// Returns `true` if `project` is one of the projects of the configuration, in which resources may belong to this Kubernetes cluster.
    pub(super) fn owns(&self, project: &ProjectId) -> bool {
        self.service.owns(project)
    }

    /// Returns the maximum length of a request body in bytes, which decreases when Octavia refuses a body as too large.
    pub(super) fn body_limit(&self) -> usize {
        self.service.body_limit()
    }

    /// Returns the features of the cloud's Octavia release.
    pub(super) async fn features(&self) -> Result<Features> {
        Ok(Features::of(self.service.version().await?))
    }

    /// Lists the resources of the type `T` that match `filter`, with only the given fields.
    pub(super) async fn list<T: OctaviaResource>(
        &self,
        step: StepName,
        filter: &Filter,
        fields: &str,
    ) -> Result<Vec<T>> {
        self.service.get(step, T::COLLECTION).fields(fields).filter(filter).list(T::COLLECTION).await
    }

    /// Reads a resource, or returns `None` if it does not exist.
    pub(super) async fn get<T: OctaviaResource>(
        &self,
        step: StepName,
        id: &str,
        fields: &str,
    ) -> Result<Option<T>> {
        let call = self.service.get(step, format!("{}/{id}", T::COLLECTION));
        existing(call.fields(fields).json_member(T::KEY).await)
    }

    /// Creates a resource. `items` is the number of other resources that the body contains; it extends the timeout.
    pub(super) async fn create<T: OctaviaResource>(&self, body: Value, items: usize) -> Result<T> {
        let call = self.service.post(T::CREATE, T::COLLECTION).json(&json!({ T::KEY: body }));
        call.items(items).json_member(T::KEY).await
    }

    /// Builds the call that updates the resource `id` with the fields of `body`. The caller sends it.
    pub(super) fn update<T: OctaviaResource>(&self, id: &str, body: &Value) -> ApiCall<'_> {
        let call = self.service.put(T::UPDATE, format!("{}/{id}", T::COLLECTION));
        call.json(&json!({ T::KEY: body }))
    }

    /// Deletes a resource: a pool with its members, a listener without its pool, or a health monitor. If it does not exist, that is an
    /// error.
    pub(super) async fn delete<T: OctaviaResource>(&self, id: &str) -> Result<()> {
        self.service.delete(T::DELETE, format!("{}/{id}", T::COLLECTION)).done().await
    }

    /// Starts the deletion of a load balancer with its listeners and pools. Returns `false` if it does not exist.
    pub(super) async fn delete_load_balancer(&self, id: &LoadBalancerId) -> Result<bool> {
        let call = self.service.delete(LoadBalancerBody::DELETE, format!("loadbalancers/{id}"));
        existing(call.query("cascade", "true").done().await).map(|done| done.is_some())
    }

    /// Lists the members of a pool, or returns `None` if the pool does not exist.
    pub(super) async fn members(&self, pool: &PoolId) -> Result<Option<Vec<MemberBody>>> {
        let call = self.service.get("list the members of a pool", format!("pools/{pool}/members"));
        existing(call.fields(MEMBER_FIELDS).list("members").await)
    }

    /// Reads the members of all pools of a load balancer by one request, or returns `None` if the load balancer does not exist. The subnets
    /// of the members are missing.
    pub(super) async fn status_tree(&self, id: &LoadBalancerId) -> Result<Option<StatusTreeBody>> {
        let step = "read the members of a load balancer's pools";
        existing(self.service.get(step, format!("loadbalancers/{id}/status")).json_member("statuses").await)
    }

    /// Replaces all members of a pool or, if `keep_others`, adds and changes these members only. Older releases reject `keep_others`.
    pub(super) async fn set_members(
        &self,
        pool: &PoolId,
        members: &[Value],
        keep_others: bool,
    ) -> Result<()> {
        let call = self.service.put(SET_MEMBERS, format!("pools/{pool}/members"));
        let call = if keep_others { call.query("additive_only", "true") } else { call };
        call.json(&json!({ "members": members })).items(members.len()).done().await
    }

    /// Removes one member from a pool. A member that does not exist is no error.
    pub(super) async fn remove_member(&self, pool: &PoolId, member: &MemberId) -> Result<()> {
        let path = format!("pools/{pool}/members/{member}");
        existing(self.service.delete(SET_MEMBERS, path).done().await).map(drop)
    }
}
