//! The driver `memory` of adoptions: resources without a cluster represent those of Kuryr.

use std::sync::Arc;

use async_trait::async_trait;
use staffetta_driver::{
    Adoption, AdoptionDriver, ClusterId, DriverError, ExistingAttachment, ExistingLoadBalancer, ExistingMark,
    ExistingNetwork, ExistingPort, ExistingPublicIp, Owner, Reason, UnusedResource,
};
use tokio::time::Instant;

use super::port::MemoryPort;
use super::{MemoryNetwork, MemoryServices};

/// The driver `memory` of adoptions, for one cluster in a simulated cloud.
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

    fn mark(&self, cluster: Option<&ClusterId>, owner: Option<&Owner>) -> ExistingMark {
        match (cluster, owner) {
            (None, _) => ExistingMark::Unmarked,
            (Some(cluster), Some(owner)) if *cluster == self.cluster => ExistingMark::Owned(owner.clone()),
            (Some(_), _) => ExistingMark::Foreign,
        }
    }

    fn existing_port(&self, port: &MemoryPort) -> ExistingPort {
        let vif = port.vif_at(Instant::now());
        ExistingPort {
            mac_address: vif.address.to_string(),
            ips: vif.ips().collect(),
            active: vif.active,
            id: vif.id,
            pod: port.owner.as_ref().map(|owner| owner.uid.clone()),
            attachment: ExistingAttachment::Host(port.node_name.clone()),
            security_groups: port.security_groups.clone(),
            mark: self.mark(port.cluster.as_ref(), port.owner.as_ref()),
        }
    }

    fn adopt_port(&self, listed: &ExistingPort, owner: &Owner) -> Result<(), Reason> {
        let port = self.network.port(&listed.id).ok_or(Reason::NotFound)?;
        match self.mark(port.cluster.as_ref(), port.owner.as_ref()) {
            ExistingMark::Unmarked if self.existing_port(&port).pod == listed.pod => {
                let (cluster, owner) = (Some(self.cluster.clone()), Some(owner.clone()));
                self.network.insert_port(MemoryPort { cluster, owner, ..port });
                Ok(())
            }
            mark => is_owned_by(&mark, owner),
        }
    }
}

/// Fails unless the mark is that of `owner`.
fn is_owned_by(mark: &ExistingMark, owner: &Owner) -> Result<(), Reason> {
    let is_owner = matches!(mark, ExistingMark::Owned(marked) if marked.uid == owner.uid);
    is_owner.then_some(()).ok_or(Reason::Refused)
}

#[async_trait]
impl AdoptionDriver for MemoryAdoption {
    async fn ports(&self) -> Result<Vec<ExistingPort>, DriverError> {
        Ok(self.network.ports().iter().map(|port| self.existing_port(port)).collect())
    }

    async fn load_balancers(&self) -> Result<Vec<ExistingLoadBalancer>, DriverError> {
        let state = self.services.state();
        let existing = state.load_balancers.all().map(|balancer| ExistingLoadBalancer {
            id: balancer.tree.id.clone(),
            name: balancer.tree.name.clone(),
            project: balancer.tree.project.clone(),
            vip: Some(balancer.tree.vip),
            subnet: Some(balancer.tree.subnet.clone()),
            port: Some(balancer.tree.port.clone()),
            mark: self.mark(balancer.cluster.as_ref(), balancer.owner.as_ref()),
        });
        Ok(existing.collect())
    }

    async fn public_ips(&self) -> Result<Vec<ExistingPublicIp>, DriverError> {
        let state = self.services.state();
        let existing = state.public_ips.all().map(|held| ExistingPublicIp {
            id: held.public_ip.id.clone(),
            ip: held.public_ip.ip,
            port: held.public_ip.port.clone(),
            mark: self.mark(held.cluster.as_ref(), held.owner.as_ref()),
        });
        Ok(existing.collect())
    }

    async fn networks(&self) -> Result<Vec<ExistingNetwork>, DriverError> {
        Ok(Vec::new())
    }

    async fn adopt(&self, adoption: &Adoption) -> Result<(), DriverError> {
        let (adopted, name) = match adoption {
            Adoption::Port { port, owner, .. } => (self.adopt_port(port, owner), port.id.to_string()),
            Adoption::LoadBalancer(id, owner) => {
                let mut state = self.services.state();
                let found = state.load_balancers.get_mut(id).ok_or(Reason::NotFound);
                let adopted = found.and_then(|found| {
                    if found.cluster.is_none() {
                        (found.cluster, found.owner) = (Some(self.cluster.clone()), Some(owner.clone()));
                    }
                    is_owned_by(&self.mark(found.cluster.as_ref(), found.owner.as_ref()), owner)
                });
                (adopted, id.to_string())
            }
            Adoption::PublicIp(id, owner) => {
                let adopted = self.services.state().public_ips.adopt(&self.cluster, owner, id);
                (adopted, id.to_string())
            }
            Adoption::Network(network, ..) => (Err(Reason::NotFound), network.to_string()),
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
            UnusedResource::SecurityGroup(_) => Err(failed(Reason::Unsupported)),
        }
    }
}
