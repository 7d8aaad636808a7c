//! The driver `memory` of adoptions: resources whose ownership mark names no cluster represent those of Kuryr.

use std::sync::Arc;

use async_trait::async_trait;
use staffetta_driver::{
    Adoption, AdoptionDriver, ClusterId, DriverError, ExistingAttachment, ExistingLoadBalancer,
    ExistingNetwork, ExistingPort, ExistingPublicIp, NetworkId, Owner, Reason, SubnetId, UnusedResource,
};
use tokio::time::Instant;

use super::port::MemoryPort;
use super::{MemoryNetwork, MemoryServices};

/// The driver `memory` that adopts the resources of another controller, for one cluster in a simulated cloud.
pub struct MemoryAdoption {
    network: Arc<MemoryNetwork>,
    services: Arc<MemoryServices>,
    cluster: ClusterId,
}

impl MemoryAdoption {
    /// Creates the driver, which gives resources the ownership mark of `cluster`.
    pub fn new(network: Arc<MemoryNetwork>, services: Arc<MemoryServices>, cluster: ClusterId) -> Self {
        Self { network, services, cluster }
    }

    /// Returns the port as a driver of a real cloud lists it. Simulated ports are always bound on a host.
    fn existing_port(&self, port: &MemoryPort) -> ExistingPort {
        let vif = port.vif_at(Instant::now());
        ExistingPort {
            mac_address: vif.address.to_string(),
            ips: vif.ips().collect(),
            active: vif.active,
            id: vif.id,
            pod: port.owner.as_ref().map(|owner| owner.uid.clone()),
            subnets: port.subnets.clone(),
            attachment: ExistingAttachment::Host(port.node_name.clone()),
            security_groups: port.security_groups.clone(),
            mark: port.mark().existing(&self.cluster),
        }
    }

    /// Sets the ownership mark of the listed port to `owner`. Fails if the port does not exist, has another mark, or has no mark and names
    /// another pod than when it was listed.
    fn adopt_port(&self, listed: &ExistingPort, owner: &Owner) -> Result<(), Reason> {
        let port = self.network.port(&listed.id).ok_or(Reason::NotFound)?;
        let mut mark = port.mark();
        if mark.cluster.is_none() && self.existing_port(&port).pod != listed.pod {
            return Err(Reason::Refused);
        }
        mark.adopt(&self.cluster, owner)?;
        self.network.insert_port(MemoryPort { cluster: mark.cluster, owner: mark.owner, ..port });
        Ok(())
    }

    /// Sets the ownership mark of a network to `owner`. Fails if the network with this subnet does not exist, or has another mark.
    fn adopt_network(&self, network: &NetworkId, subnet: &SubnetId, owner: &Owner) -> Result<(), Reason> {
        let mut networks = self.network.namespaces();
        let found = networks.get_mut(network).filter(|found| found.network.subnet == *subnet);
        let found = found.ok_or(Reason::NotFound)?;
        let mut mark = found.mark();
        mark.adopt(&self.cluster, owner)?;
        (found.cluster, found.owner) = (mark.cluster, mark.owner);
        Ok(())
    }
}

#[async_trait]
impl AdoptionDriver for MemoryAdoption {
    async fn ports(&self) -> Result<Vec<ExistingPort>, DriverError> {
        Ok(self.network.ports().iter().map(|port| self.existing_port(port)).collect())
    }

    async fn load_balancers(&self) -> Result<Vec<ExistingLoadBalancer>, DriverError> {
        let state = self.services.state();
        let existing = state.load_balancers.by_id.values().map(|balancer| ExistingLoadBalancer {
            id: balancer.tree.id.clone(),
            name: balancer.tree.name.clone(),
            project: balancer.tree.project.clone(),
            vip: Some(balancer.tree.vip),
            subnet: Some(balancer.tree.subnet.clone()),
            port: Some(balancer.tree.port.clone()),
            mark: balancer.mark.existing(&self.cluster),
        });
        Ok(existing.collect())
    }

    async fn public_ips(&self) -> Result<Vec<ExistingPublicIp>, DriverError> {
        let state = self.services.state();
        let existing = state.public_ips.by_id.values().map(|held| ExistingPublicIp {
            id: held.public_ip.id.clone(),
            ip: held.public_ip.ip,
            port: held.public_ip.port.clone(),
            mark: held.mark.existing(&self.cluster),
        });
        Ok(existing.collect())
    }

    async fn networks(&self) -> Result<Vec<ExistingNetwork>, DriverError> {
        let existing = self.network.namespace_networks().into_iter().map(|made| ExistingNetwork {
            mark: made.mark().existing(&self.cluster),
            id: made.network.network,
            name: made.name,
            subnets: vec![made.network.subnet],
        });
        Ok(existing.collect())
    }

    async fn adopt(&self, adoption: &Adoption) -> Result<(), DriverError> {
        let (adopted, name) = match adoption {
            Adoption::Port { port, owner, .. } => (self.adopt_port(port, owner), port.id.to_string()),
            Adoption::LoadBalancer(id, owner) => {
                let mut state = self.services.state();
                let found = state.load_balancers.by_id.get_mut(id).ok_or(Reason::NotFound);
                (found.and_then(|found| found.mark.adopt(&self.cluster, owner)), id.to_string())
            }
            Adoption::PublicIp(id, owner) => {
                let adopted = self.services.state().public_ips.adopt(&self.cluster, owner, id);
                (adopted, id.to_string())
            }
            Adoption::Network(network, subnet, owner) => {
                (self.adopt_network(network, subnet, owner), network.to_string())
            }
        };
        adopted.map_err(|reason| DriverError::new(reason, "adopt a resource").detail(name))
    }

    async fn delete(&self, resource: &UnusedResource) -> Result<(), DriverError> {
        const STEP: &str = "delete an unused resource";
        let failed = |reason| DriverError::new(reason, STEP);
        match resource {
            UnusedResource::Port(id) => {
                let Some(port) = self.network.port(id) else { return Ok(()) };
                if port.cluster.is_some() || port.owner.is_some() || port.vif_at(Instant::now()).active {
                    return Err(failed(Reason::Refused).detail(id.as_str()));
                }
                self.network.remove_port(id);
                Ok(())
            }
            UnusedResource::SecurityGroup(id, policy) => self.network.delete_kuryrs_group(id, policy),
        }
    }
}
