//! The driver `openstack` of adoptions: lists and adopts what Kuryr created, for a migration.

use std::sync::Arc;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::json;
use staffetta_driver::{
    Adoption, AdoptionDriver, ClusterId, DriverError, ExistingLoadBalancer, ExistingMark, ExistingNetwork,
    ExistingPort, ExistingPublicIp, NetworkId, Owner, ProjectId, Reason, SecurityGroupId, SubnetId,
    UnusedResource, is_kuryr_policy_group,
};

use crate::cloud::{Cloud, Service};
use crate::error::{DriverResult, Result, StepName, existing};
use crate::floating_ip::NeutronFloatingIps;
use crate::mark;
use crate::neutron::{MarkedPorts, PodVifNestedOptions};
use crate::octavia::LoadBalancerAdoption;
use crate::text::{is_well_formed, or_default};

const ADOPT: StepName = "adopt a network";
const DELETE: StepName = "delete an unused security group";

/// The driver `openstack` of adoptions, which lists resources of the cloud and gives those of Kuryr an ownership mark, for a migration.
pub struct OpenStackAdoption {
    network: Service,
    cluster: ClusterId,
    ports: Arc<MarkedPorts>,
    node_subnets: Vec<SubnetId>,
    load_balancers: LoadBalancerAdoption,
    public_ips: NeutronFloatingIps,
}

/// A network, subnet or security group in a response of Neutron. The project and the description, which may be an ownership mark, tell
/// whose it is.
#[derive(Deserialize)]
pub(crate) struct DescribedResource {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) project_id: ProjectId,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) description: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    pub(crate) subnets: Vec<SubnetId>,
}

impl OpenStackAdoption {
    /// Creates the driver, which gives resources the mark of `cluster`. The ports of nodes are in the subnets of `nested`.
    pub fn new(
        cloud: &Cloud,
        cluster: ClusterId,
        ports: Arc<MarkedPorts>,
        nested: PodVifNestedOptions,
    ) -> Self {
        Self {
            network: cloud.network(),
            ports,
            node_subnets: nested.worker_nodes_subnets,
            load_balancers: LoadBalancerAdoption::new(cloud, cluster.clone()),
            public_ips: NeutronFloatingIps::new(cloud, cluster.clone(), None, None),
            cluster,
        }
    }

    /// Classifies the ownership mark in the description of a resource: of this cluster, another one, or none.
    fn mark_of(&self, resource: &DescribedResource) -> ExistingMark {
        let owner = mark::owner_in(&resource.description, &self.cluster);
        mark::classify(owner, &resource.description, &[])
    }

    /// Reads a resource. Returns `None` if it does not exist or is not in the projects of the configuration, or if `id` does not have the
    /// form of an id. `kind` is the key of a single resource in Neutron's API, such as `network`.
    async fn read(&self, step: StepName, kind: &str, id: &str) -> Result<Option<DescribedResource>> {
        if !is_well_formed(id) {
            return Ok(None);
        }
        let path = format!("{}s/{id}", kind.replace('_', "-"));
        let found: Option<DescribedResource> =
            existing(self.network.get(step, path).json_member(kind).await)?;
        Ok(found.filter(|found| self.network.owns(&found.project_id)))
    }

    /// Gives a network and its subnet the ownership mark of `owner`. Fails with [`Reason::NotFound`] if the network is not found or lacks
    /// the subnet, and with [`Reason::Refused`] if it has another mark. The network is marked last, because later look-ups find only the
    /// network by its mark, and the subnet by the network.
    async fn adopt_network(&self, network: &NetworkId, subnet: &SubnetId, owner: &Owner) -> DriverResult<()> {
        let failed = |reason| DriverError::new(reason, ADOPT).detail(format!("network {network}"));
        let found = self.read(ADOPT, "network", network.as_str()).await?;
        let found = found.filter(|found| found.subnets.contains(subnet));
        match self.mark_of(&found.ok_or_else(|| failed(Reason::NotFound))?) {
            ExistingMark::Unmarked => {}
            ExistingMark::Owned(marked) if marked.uid == owner.uid => {}
            ExistingMark::Owned(_) | ExistingMark::Foreign => return Err(failed(Reason::Refused)),
        }
        for (kind, id) in [("subnet", subnet.as_str()), ("network", network.as_str())] {
            let change = json!({ kind: { "description": mark::description(&self.cluster, owner) } });
            self.network.put(ADOPT, format!("{kind}s/{id}")).json(&change).done().await?;
        }
        Ok(())
    }

    /// Deletes the security group `id`, which Kuryr created for the network policy `policy` according to its description. For any other
    /// group, the error is [`Reason::Refused`]. A group that does not exist, or is in no project of the configuration, is no error.
    async fn delete_group(&self, id: &SecurityGroupId, policy: &str) -> DriverResult<()> {
        let Some(group) = self.read(DELETE, "security_group", id.as_str()).await? else { return Ok(()) };
        // The mark of a cluster would be in the description.
        if !is_kuryr_policy_group(&group.description, policy) {
            let detail = format!(
                "security group {id} is not the one of Kuryr for policy {policy}; if nothing needs it, delete it by hand"
            );
            return Err(DriverError::new(Reason::Refused, DELETE).detail(detail));
        }
        Ok(existing(self.network.delete(DELETE, format!("security-groups/{id}")).done().await).map(drop)?)
    }
}

#[async_trait]
impl AdoptionDriver for OpenStackAdoption {
    async fn ports(&self) -> DriverResult<Vec<ExistingPort>> {
        self.ports.existing(&self.node_subnets).await
    }

    async fn load_balancers(&self) -> DriverResult<Vec<ExistingLoadBalancer>> {
        self.load_balancers.existing().await
    }

    async fn public_ips(&self) -> DriverResult<Vec<ExistingPublicIp>> {
        self.public_ips.existing().await
    }

    async fn networks(&self) -> DriverResult<Vec<ExistingNetwork>> {
        let call = self.network.get("list the networks", "networks");
        let listed: Vec<DescribedResource> =
            call.fields("id project_id description name subnets").list("networks").await?;
        let ours = listed.into_iter().filter(|network| self.network.owns(&network.project_id));
        let existing = |network: DescribedResource| ExistingNetwork {
            mark: self.mark_of(&network),
            id: network.id.into(),
            name: network.name,
            subnets: network.subnets,
        };
        Ok(ours.map(existing).collect())
    }

    async fn adopt(&self, adoption: &Adoption) -> DriverResult<()> {
        match adoption {
            Adoption::Port { port, host, owner } => self.ports.adopt(port, *host, owner).await,
            Adoption::LoadBalancer(id, owner) => self.load_balancers.adopt(id, owner).await,
            Adoption::PublicIp(id, owner) => self.public_ips.adopt(id, owner).await,
            Adoption::Network(network, subnet, owner) => self.adopt_network(network, subnet, owner).await,
        }
    }

    async fn delete(&self, resource: &UnusedResource) -> DriverResult<()> {
        match resource {
            UnusedResource::Port(id) => self.ports.delete_unused(id).await,
            UnusedResource::SecurityGroup(id, policy) => self.delete_group(id, policy).await,
        }
    }
}
