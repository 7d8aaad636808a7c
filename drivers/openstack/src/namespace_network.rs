//! The driver `namespace` of namespace networks: each namespace has a network, a subnet from a subnet pool, and an interface of a router in
//! that subnet.
//!
//! The network is found by the ownership mark in its description. The subnet and the router interface are found by the network.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};
use staffetta_driver::{
    ClusterId, NamespaceNetwork, NamespaceSubnetDriver, Owned, Owner, ProjectId, VifPoolDriver,
};
use tokio::sync::OnceCell;

use crate::adoption::DescribedResource;
use crate::cloud::Service;
use crate::error::{DriverResult, OpenStackError, Result, StepName, existing};
use crate::mark;
use crate::neutron::api::NeutronApi;
use crate::neutron::wire::PortBody;

/// The driver `namespace` of namespace networks, which creates a network and a subnet for each namespace.
pub struct NamespaceNetworks {
    neutron: NeutronApi,
    cluster: ClusterId,
    subnet_pool: String,
    router: Option<String>,
    /// The IP version of the subnet pool, which never changes.
    ip_version: OnceCell<u8>,
    /// The VIF pool whose ports in a network are deleted before the network, if there is a pool.
    pool: Option<Arc<dyn VifPoolDriver>>,
}

/// The fields of a Neutron subnet pool that are read.
#[derive(Deserialize)]
struct SubnetPoolBody {
    ip_version: u8,
}

impl NamespaceNetworks {
    /// Creates the driver. It creates networks with the ownership mark of `cluster`. Each has a subnet from the subnet pool with the id
    /// `subnet_pool` and, if `router` is given, an interface of that router.
    pub fn new(network: Service, cluster: ClusterId, subnet_pool: String, router: Option<String>) -> Self {
        let neutron = NeutronApi::new(network);
        Self { neutron, cluster, subnet_pool, router, ip_version: OnceCell::new(), pool: None }
    }

    /// Makes `pool` delete its ports in a network before the network is deleted.
    #[must_use]
    pub fn with_pool(mut self, pool: Arc<dyn VifPoolDriver>) -> Self {
        self.pool = Some(pool);
        self
    }

    /// Returns the sorted ids of the networks whose ownership mark names `owner`.
    async fn marked_for(&self, owner: &Owner) -> Result<Vec<String>> {
        let description = mark::description(&self.cluster, owner);
        let call = self.neutron.service.get("find the network of a namespace", "networks");
        let call = call.query("description", description.clone()).fields("id project_id description");
        let mut found: Vec<DescribedResource> = call.list("networks").await?;
        found.retain(|network| {
            network.description == description && self.neutron.service.owns(&network.project_id)
        });
        Ok(sorted_ids(found))
    }

    /// Lists the ids of the subnets of a network, sorted.
    async fn subnets(&self, network: &str) -> Result<Vec<String>> {
        let call = self.neutron.service.get("find the subnet of a namespace", "subnets");
        Ok(sorted_ids(call.query("network_id", network).fields("id").list("subnets").await?))
    }

    /// Creates a network or a subnet and returns its id. `step` is the operation that errors name, `kind` is the key of the resource in
    /// Neutron's API, such as `network`, and `body` contains the fields other than the name, the ownership mark and the project.
    async fn create(
        &self,
        (step, kind): (StepName, &str),
        owner: &Owner,
        project: &ProjectId,
        mut body: Value,
    ) -> Result<String> {
        body["name"] = format!("{}/{}", self.cluster, owner.name).into();
        body["description"] = mark::description(&self.cluster, owner).into();
        body["project_id"] = project.as_str().into();
        let call = self.neutron.service.post(step, format!("{kind}s")).json(&json!({ kind: body }));
        Ok(call.json_member::<DescribedResource>(kind).await?.id)
    }

    /// Creates the subnet of the network of `owner`, from the subnet pool, and returns its id.
    async fn create_subnet(&self, network: &str, owner: &Owner, project: &ProjectId) -> Result<String> {
        let read_ip_version = || async {
            let call =
                self.neutron.service.get("read the subnet pool", format!("subnetpools/{}", self.subnet_pool));
            Ok::<_, OpenStackError>(call.json_member::<SubnetPoolBody>("subnetpool").await?.ip_version)
        };
        let body = json!({
            "network_id": network,
            "subnetpool_id": self.subnet_pool,
            "ip_version": self.ip_version.get_or_try_init(read_ip_version).await?,
            "enable_dhcp": false,
        });
        self.create(("create the subnet of a namespace", "subnet"), owner, project, body).await
    }

    /// Adds the subnet to the router, unless that has been done already. Neutron rejects a second addition with status 400, which has other
    /// causes too. After that status, the ports of the network are listed, to see if the router has an interface in the subnet.
    async fn join(&self, router: &str, network: &str, subnet: &str) -> Result<()> {
        let path = format!("routers/{router}/add_router_interface");
        let call = self.neutron.service.put("add the subnet of a namespace to the router", path);
        let error = match call.json(&json!({ "subnet_id": subnet })).done().await {
            Err(error) if error.status() == Some(400) => error,
            result => return result,
        };
        let is_interface = |port: &PortBody| {
            let in_subnet = port.fixed_ips.iter().any(|ip| ip.subnet_id.as_str() == subnet);
            is_router_interface(port) && port.device_id == router && in_subnet
        };
        if self.ports(network).await?.iter().any(is_interface) { Ok(()) } else { Err(error) }
    }

    /// Lists the ports in a network: those of pods, of routers and of Neutron itself.
    async fn ports(&self, network: &str) -> Result<Vec<PortBody>> {
        let fields = "id project_id device_id device_owner fixed_ips description revision_number";
        let filter = [("network_id", network.to_owned())];
        self.neutron.ports("list the ports of a namespace's network", &filter, fields).await
    }

    /// Deletes the network with its subnets, its router interfaces and the pooled ports of this cluster. If ports of pods remain in the
    /// network, Neutron rejects the deletion and names them.
    async fn delete(&self, network: &str) -> Result<()> {
        let ports = self.ports(network).await?;
        let interfaces = ports.iter().filter(|port| is_router_interface(port));
        let interfaces = interfaces.flat_map(|port| {
            port.fixed_ips.iter().map(|ip| (port.device_id.as_str(), ip.subnet_id.as_str()))
        });
        for (router, subnet) in interfaces.collect::<BTreeSet<_>>() {
            let path = format!("routers/{router}/remove_router_interface");
            let call = self.neutron.service.put("remove the subnet of a namespace from its router", path);
            existing(call.json(&json!({ "subnet_id": subnet })).done().await)?;
        }
        for port in &ports {
            // The ports of this cluster without a pod.
            let mark = port.mark_of(&self.cluster).filter(|_| self.neutron.service.owns(&port.project_id));
            let Some(mark) = mark.filter(|mark| mark.owner().is_none()) else {
                continue;
            };
            let step = "delete a port that a namespace left";
            self.neutron.delete_pod_port(step, &port.id, Some(&mark), port.revision_number).await?;
        }
        let path = format!("networks/{network}");
        existing(self.neutron.service.delete("delete the network of a namespace", path).done().await)
            .map(drop)
    }
}

/// The operation that errors name when the network of a namespace cannot be created, and the key of a network in Neutron's API.
const NETWORK: (&str, &str) = ("create the network of a namespace", "network");

#[async_trait]
impl NamespaceSubnetDriver for NamespaceNetworks {
    async fn ensure_network(&self, owner: &Owner, project: &ProjectId) -> DriverResult<NamespaceNetwork> {
        let network = match self.marked_for(owner).await?.into_iter().next() {
            Some(network) => network,
            None => self.create(NETWORK, owner, project, json!({})).await?,
        };
        let subnet = match self.subnets(&network).await?.into_iter().next() {
            Some(subnet) => subnet,
            None => self.create_subnet(&network, owner, project).await?,
        };
        if let Some(router) = &self.router {
            self.join(router, &network, &subnet).await?;
        }
        Ok(NamespaceNetwork { network: network.into(), subnet: subnet.into() })
    }

    async fn release_network(&self, owner: &Owner) -> DriverResult<()> {
        for network in self.marked_for(owner).await? {
            if let Some(pool) = &self.pool {
                pool.drain_network(&network.as_str().into()).await?;
            }
            self.delete(&network).await?;
        }
        Ok(())
    }

    async fn networks(&self) -> DriverResult<Vec<Owned<Vec<NamespaceNetwork>>>> {
        let call = self.neutron.service.get("list the networks of namespaces", "networks");
        let found: Vec<DescribedResource> =
            call.fields("id project_id description subnets").list("networks").await?;
        let ours = found.into_iter().filter(|network| self.neutron.service.owns(&network.project_id));
        let owned = ours.filter_map(|network| {
            let owner = mark::owner_in(&network.description, &self.cluster)?;
            let with = |subnet| NamespaceNetwork { network: network.id.as_str().into(), subnet };
            let resource = network.subnets.into_iter().map(with).collect();
            Some(Owned { owner: Some(owner), resource })
        });
        Ok(owned.collect())
    }
}

/// Returns the ids of these resources, sorted.
fn sorted_ids(bodies: Vec<DescribedResource>) -> Vec<String> {
    let mut ids: Vec<_> = bodies.into_iter().map(|body| body.id).collect();
    ids.sort();
    ids
}

/// Returns `true` if the `device_owner` of the port is that of a router interface: `network:router_interface`,
/// `network:router_interface_distributed` or `network:ha_router_replicated_interface` (`neutron_lib.constants`).
fn is_router_interface(port: &PortBody) -> bool {
    port.device_owner.starts_with("network:router_interface")
        || port.device_owner == "network:ha_router_replicated_interface"
}
