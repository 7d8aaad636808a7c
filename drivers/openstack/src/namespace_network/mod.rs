//! The driver `namespace` of namespace networks: a network, a subnet from a pool, a router interface.
//!
//! A network is found by its description, which Neutron takes in the call that makes it; all else is found by the network.

mod wire;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;
use staffetta_driver::{
    ClusterId, DriverError, Marked, NamespaceNetwork, NamespaceSubnetDriver, Owner, ProjectId, VifPoolDriver,
};

use self::wire::{NetworkTold, PortTold, SubnetPoolTold, SubnetTold, TrunkTold};
use crate::cached::Cached;
use crate::cloud::Service;
use crate::error::{OpenStackError, existing};
use crate::mark;
use crate::neutron::mark::Mark;

/// How long Neutron is not asked again of which version the addresses of the pool are.
const FRESH: Duration = Duration::from_secs(600);

/// The driver `namespace` of namespace networks.
pub struct NamespaceNetworks {
    network: Service,
    cluster: ClusterId,
    subnet_pool: String,
    router: Option<String>,
    ip_version: Cached<(), u8>,
    /// What keeps ports ready in the networks, where something does.
    pool: Option<Arc<dyn VifPoolDriver>>,
}

impl fmt::Debug for NamespaceNetworks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cluster, subnet_pool, router, .. } = self;
        let mut shown = f.debug_struct("NamespaceNetworks");
        shown.field("cluster", cluster).field("subnet_pool", subnet_pool).field("router", router);
        shown.finish_non_exhaustive()
    }
}

impl NamespaceNetworks {
    /// Makes networks with the mark of `cluster`, each with a subnet of the pool, joined by the router.
    pub fn new(network: Service, cluster: ClusterId, subnet_pool: String, router: Option<String>) -> Self {
        Self { network, cluster, subnet_pool, router, ip_version: Cached::new(FRESH), pool: None }
    }

    /// With a pool that keeps ports ready in the networks: it gives a network up before that is deleted.
    #[must_use]
    pub fn vacated_by(mut self, pool: Arc<dyn VifPoolDriver>) -> Self {
        self.pool = Some(pool);
        self
    }

    /// The ids of the networks that are marked for `owner`, the smallest first.
    async fn marked_for(&self, owner: &Owner) -> Result<Vec<String>, OpenStackError> {
        let description = mark::description(&self.cluster, owner);
        let call = self.network.get("look for the network of a namespace", "networks");
        let call = call.query("description", description.clone()).fields(&["id", "description"]);
        let found: Vec<NetworkTold> = call.list("networks").await?;
        let ours = found.into_iter().filter(|network| network.description == description);
        let mut ids: Vec<_> = ours.map(|network| network.id).collect();
        ids.sort();
        Ok(ids)
    }

    async fn make_network(&self, owner: &Owner, project: &ProjectId) -> Result<String, OpenStackError> {
        let body = json!({ "network": {
            "name": format!("{}/{}", self.cluster, owner.name),
            "description": mark::description(&self.cluster, owner),
            "project_id": project,
        } });
        let call = self.network.post("make the network of a namespace", "networks").json(&body);
        Ok(call.answer_in::<NetworkTold>("network").await?.id)
    }

    async fn subnets(&self, network: &str) -> Result<Vec<String>, OpenStackError> {
        let call = self.network.get("look for the subnet of a namespace", "subnets");
        let call = call.query("network_id", network).fields(&["id"]);
        let mut ids: Vec<_> =
            call.list::<SubnetTold>("subnets").await?.into_iter().map(|subnet| subnet.id).collect();
        ids.sort();
        Ok(ids)
    }

    async fn make_subnet(
        &self,
        network: &str,
        owner: &Owner,
        project: &ProjectId,
    ) -> Result<String, OpenStackError> {
        let ip_version = self.ip_version.get(&(), || self.ask_ip_version()).await?;
        let body = json!({ "subnet": {
            "name": format!("{}/{}", self.cluster, owner.name),
            "description": mark::description(&self.cluster, owner),
            "project_id": project,
            "network_id": network,
            "subnetpool_id": self.subnet_pool,
            "ip_version": ip_version,
            "enable_dhcp": false,
        } });
        let call = self.network.post("make the subnet of a namespace", "subnets").json(&body);
        Ok(call.answer_in::<SubnetTold>("subnet").await?.id)
    }

    async fn ask_ip_version(&self) -> Result<u8, OpenStackError> {
        let call = self.network.get("read the subnet pool", format!("subnetpools/{}", self.subnet_pool));
        Ok(call.answer_in::<SubnetPoolTold>("subnetpool").await?.ip_version)
    }

    /// Joins the subnet to the router. Neutron refuses that with 400 where it is done already, as it refuses all else that
    /// is wrong with it.
    async fn join(&self, router: &str, network: &str, subnet: &str) -> Result<(), OpenStackError> {
        let path = format!("routers/{router}/add_router_interface");
        let call = self.network.put("join the subnet of a namespace to the router", path);
        match call.json(&json!({ "subnet_id": subnet })).done().await {
            Err(error) if error.status() == Some(400) => {
                let ports = self.ports(network).await?;
                let joined =
                    |port: &PortTold| port.is_of_router() && port.device_id == router && port.is_in(subnet);
                if ports.iter().any(joined) { Ok(()) } else { Err(error) }
            }
            result => result,
        }
    }

    async fn ports(&self, network: &str) -> Result<Vec<PortTold>, OpenStackError> {
        let call = self.network.get("list the ports of a namespace's network", "ports");
        let fields = ["id", "device_id", "device_owner", "fixed_ips", "description"];
        call.query("network_id", network).fields(&fields).list("ports").await
    }

    /// Removes the network with its subnets and its place at routers, and the ports that this cluster kept ready in it. What
    /// was made for a pod stays, and with it the network: Neutron's refusal says so.
    async fn remove(&self, network: &str) -> Result<(), OpenStackError> {
        let ports = self.ports(network).await?;
        let places = ports
            .iter()
            .filter(|port| port.is_of_router())
            .flat_map(|port| port.fixed_ips.iter().map(|ip| (port.device_id.clone(), ip.subnet_id.clone())));
        for (router, subnet) in places.collect::<BTreeSet<_>>() {
            let path = format!("routers/{router}/remove_router_interface");
            let call = self.network.put("part the subnet of a namespace from its router", path);
            existing(call.json(&json!({ "subnet_id": subnet })).done().await)?;
        }
        for port in ports.iter().filter(|port| self.keeps(port)) {
            match self.delete_port(&port.id).await {
                Err(error) if error.is("PortInUseAsSubPort") => {
                    self.detach(&port.id).await?;
                    self.delete_port(&port.id).await?;
                }
                result => result?,
            }
        }
        let path = format!("networks/{network}");
        existing(self.network.delete("delete the network of a namespace", path).done().await).map(drop)
    }

    /// Whether this cluster keeps the port ready for whoever comes.
    fn keeps(&self, port: &PortTold) -> bool {
        Mark::read(&port.description)
            .is_some_and(|mark| mark.cluster == self.cluster && mark.owner().is_none())
    }

    async fn delete_port(&self, port: &str) -> Result<(), OpenStackError> {
        let path = format!("ports/{port}");
        existing(self.network.delete("delete a port that a namespace left", path).done().await).map(drop)
    }

    /// Takes a port off the trunk of its node.
    async fn detach(&self, port: &str) -> Result<(), OpenStackError> {
        let call = self.network.get("look for the trunk of a port that a namespace left", "trunks");
        let trunks: Vec<TrunkTold> = call.fields(&["id", "sub_ports"]).list("trunks").await?;
        for trunk in trunks.iter().filter(|trunk| trunk.sub_ports.iter().any(|sub| sub.port_id == port)) {
            let path = format!("trunks/{}/remove_subports", trunk.id);
            let call = self.network.put("detach a port that a namespace left", path);
            existing(call.json(&json!({ "sub_ports": [{ "port_id": port }] })).done().await)?;
        }
        Ok(())
    }
}

#[async_trait]
impl NamespaceSubnetDriver for NamespaceNetworks {
    async fn ensure_network(
        &self,
        owner: &Owner,
        project: &ProjectId,
    ) -> Result<NamespaceNetwork, DriverError> {
        let network = match self.marked_for(owner).await?.into_iter().next() {
            Some(network) => network,
            None => self.make_network(owner, project).await?,
        };
        let subnet = match self.subnets(&network).await?.into_iter().next() {
            Some(subnet) => subnet,
            None => self.make_subnet(&network, owner, project).await?,
        };
        if let Some(router) = &self.router {
            self.join(router, &network, &subnet).await?;
        }
        Ok(NamespaceNetwork { network: network.into(), subnet: subnet.into() })
    }

    async fn release_network(&self, owner: &Owner) -> Result<(), DriverError> {
        for network in self.marked_for(owner).await? {
            if let Some(pool) = &self.pool {
                pool.vacate(&network.as_str().into()).await?;
            }
            self.remove(&network).await?;
        }
        Ok(())
    }

    async fn networks(&self) -> Result<Vec<Marked<()>>, DriverError> {
        let call = self.network.get("list the networks of namespaces", "networks");
        let found: Vec<NetworkTold> = call.fields(&["id", "description"]).list("networks").await?;
        let owners = found.iter().filter_map(|network| mark::owner_in(&network.description, &self.cluster));
        Ok(owners.map(|owner| Marked { owner: Some(owner), thing: () }).collect())
    }
}
