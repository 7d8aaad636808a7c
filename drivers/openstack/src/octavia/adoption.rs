//! Lists load balancers, whichever controller or user created them, and adopts those of Kuryr.

use serde_json::json;
use staffetta_driver::{
    ClusterId, DriverError, ExistingLoadBalancer, ExistingMark, LoadBalancerId, Owner, Reason,
};

use super::api::OctaviaApi;
use super::provisioning::ProvisioningPoller;
use super::reading::marked_owner;
use super::wire::{LoadBalancerBody, OctaviaResource};
use crate::cloud::Cloud;
use crate::error::{DriverResult, StepName};
use crate::mark;
use crate::text::{is_well_formed, without_nulls};

const ADOPT: StepName = "adopt a load balancer";

/// A client that lists the load balancers in the projects of the configuration, and adopts those without an ownership mark, such as
/// Kuryr's: it gives them the mark of this cluster.
#[derive(Debug)]
pub(crate) struct LoadBalancerAdoption {
    octavia: OctaviaApi,
    cluster: ClusterId,
    provisioning: ProvisioningPoller,
}

impl LoadBalancerAdoption {
    /// Creates the part of the driver that adopts load balancers for `cluster`.
    pub(crate) fn new(cloud: &Cloud, cluster: ClusterId) -> Self {
        let octavia = OctaviaApi::new(cloud);
        Self { provisioning: ProvisioningPoller::new(octavia.clone(), cluster.clone()), octavia, cluster }
    }

    /// Lists the load balancers in the projects of the configuration, whichever controller or user created them.
    pub(crate) async fn existing(&self) -> DriverResult<Vec<ExistingLoadBalancer>> {
        let bodies: Vec<LoadBalancerBody> =
            self.octavia.list("list the load balancers", &Vec::new(), LoadBalancerBody::FIELDS).await?;
        let ours = bodies.into_iter().filter(|body| self.octavia.owns(&body.project_id));
        Ok(ours
            .map(|body| ExistingLoadBalancer {
                mark: self.mark_of(&body),
                id: body.id,
                name: body.name,
                project: body.project_id,
                vip: body.vip_address,
                subnet: body.vip_subnet_id,
                port: body.vip_port_id,
            })
            .collect())
    }

    /// Gives a load balancer the ownership mark of `owner`. Fails with [`Reason::NotFound`] if it does not exist in the projects of the
    /// configuration, and with [`Reason::Refused`] if it has another mark.
    pub(crate) async fn adopt(&self, id: &LoadBalancerId, owner: &Owner) -> DriverResult<()> {
        let failed = |reason, why: &str| {
            DriverError::new(reason, ADOPT)
                .detail(format!("the load balancer {} {why}", id.as_str().escape_debug()))
        };
        if !is_well_formed(id.as_str()) {
            return Err(failed(Reason::NotFound, "does not exist"));
        }
        let found: Option<LoadBalancerBody> =
            self.octavia.get(ADOPT, id.as_str(), LoadBalancerBody::FIELDS).await?;
        let found = found.filter(|found| self.octavia.owns(&found.project_id));
        let found = found.ok_or_else(|| failed(Reason::NotFound, "does not exist"))?;
        match self.mark_of(&found) {
            ExistingMark::Unmarked => {
                write_mark(&self.octavia, &self.provisioning, &self.cluster, (ADOPT, owner), &found).await?;
            }
            ExistingMark::Owned(marked) if marked.uid == owner.uid => {}
            ExistingMark::Owned(_) | ExistingMark::Foreign => {
                return Err(failed(Reason::Refused, "has the mark of another owner"));
            }
        }
        Ok(())
    }

    /// Classifies the ownership mark in the description or the tags of a load balancer: of this cluster, another one, or none.
    fn mark_of(&self, body: &LoadBalancerBody) -> ExistingMark {
        mark::classify(marked_owner(body, &self.cluster), &body.description, &body.tags)
    }
}

/// Writes the ownership mark of `owner` into the description and, if the release has tags, the tags of a load balancer, and returns the
/// updated load balancer. Its other tags stay.
pub(super) async fn write_mark(
    octavia: &OctaviaApi,
    provisioning: &ProvisioningPoller,
    cluster: &ClusterId,
    (step, owner): (StepName, &Owner),
    found: &LoadBalancerBody,
) -> DriverResult<LoadBalancerBody> {
    let tags = octavia.features().await?.tags.then(|| {
        let mut tags = [found.tags.clone(), mark::tags(cluster, Some(owner))].concat();
        tags.sort_unstable();
        tags.dedup();
        tags
    });
    let change = json!({ "description": mark::description(cluster, owner), "tags": tags });
    let call = octavia.update::<LoadBalancerBody>(found.id.as_str(), &without_nulls(change));
    provisioning.change(&found.id, step, call.json_member(LoadBalancerBody::KEY)).await
}
