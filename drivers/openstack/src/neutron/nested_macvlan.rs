//! The driver `nested-macvlan`: each pod has a port of its own, and the port of its node is allowed to use the addresses of that port.

use std::sync::Arc;

use async_trait::async_trait;
use staffetta_driver::{Activation, Owned, Owner, PodVifDriver, PortId, Vif, VifRequest};

use super::address_pairs::{AddressPairs, Edit};
use super::nodes::{NodePorts, host_of};
use super::options::PodVifNestedOptions;
use super::ownership::{PortOwnership, missing};
use super::ports::MarkedPorts;
use super::translate::{self, PortAttachment};
use super::wire::{KURYR_OWNER, PortBody};
use crate::error::DriverResult;
use crate::mark::{Nesting, Parent, PortMark};

const READ: &str = "read the addresses of a port";

/// The driver `nested-macvlan` of pod VIFs: allowed address pairs let the port of the node use the addresses of the pod's port. The VIFs
/// are active at once, because the port of the node is active.
#[derive(Debug)]
pub struct NestedMacvlanDriver {
    ports: Arc<MarkedPorts>,
    nodes: NodePorts<PortId>,
    pairs: AddressPairs,
}

impl NestedMacvlanDriver {
    /// Creates the driver. `ports` is the client of the cluster's ports, which the VIF drivers share; `nested` names the subnets of the
    /// nodes.
    pub fn new(ports: Arc<MarkedPorts>, nested: PodVifNestedOptions) -> Self {
        let nodes = NodePorts::new(ports.neutron.clone(), nested.worker_nodes_subnets);
        let pairs = AddressPairs::new(ports.neutron.clone(), nested.rev_update_attempts);
        Self { ports, nodes, pairs }
    }

    /// Allows the port of the node to use the addresses of `port`, by allowed address pairs.
    async fn allow(&self, parent: &PortId, port: &PortBody) -> DriverResult<()> {
        self.pairs.edit(parent, Edit::Add(port.address_pairs())).await
    }
}

#[async_trait]
impl PodVifDriver for NestedMacvlanDriver {
    async fn request_vif(&self, request: &VifRequest) -> DriverResult<Vif> {
        let host = host_of(request)?;
        let parent = self.nodes.of(host, |port| Ok(port.id.as_str().into())).await?;
        let nesting = Nesting { host, parent: Parent::Port(PortId::clone(&parent)) };
        let port = self.ports.create(self.ports.for_pod(request, Some(nesting), None)).await?;
        let allowed = self.allow(&parent, &port).await;
        match allowed.and_then(|()| translate::vif_in(&port, &request.subnets, PortAttachment::Macvlan)) {
            Ok(vif) => Ok(Vif { active: true, ..vif }),
            Err(error) => {
                self.nodes.forget(host);
                // A pair of a deleted port would allow the node to use an address that another port may get.
                match self.pairs.edit(&parent, Edit::Remove(port.address_pairs())).await {
                    Ok(()) => Err(self.ports.delete_unusable(&port.id, error).await),
                    Err(_) => Err(error.maybe_applied()),
                }
            }
        }
    }

    async fn release_vif(&self, owner: &Owner, vif: &Vif) -> DriverResult<()> {
        let PortOwnership::Owned(nesting) = self.ports.ownership(owner, vif).await? else { return Ok(()) };
        if let Some(Nesting { parent: Parent::Port(parent), .. }) = nesting {
            let port = self.ports.neutron.port(READ, &vif.id).await?;
            // The pairs remain even if the port was deleted. The annotation of the pod may name those of another pod.
            let pairs = port.map_or_else(|| self.ports.recorded_pairs(&vif.id), |port| port.address_pairs());
            self.pairs.edit(&parent, Edit::Remove(pairs)).await?;
        }
        Ok(self.ports.delete(&vif.id).await?)
    }

    /// Allows the port of the node to use the addresses of the VIF, and returns the VIF as active. This is necessary only for a VIF that
    /// was found by its ownership mark, because its creation may have been interrupted before.
    async fn activate_vif(&self, owner: &Owner, vif: &Vif) -> DriverResult<Activation> {
        self.ports.check_owner(owner, vif).await?;
        let port = self.ports.neutron.port(READ, &vif.id).await?.ok_or_else(|| missing(vif))?;
        if let Some(parent) = self.ports.mark_of(&port).as_ref().and_then(PortMark::parent_port) {
            self.allow(parent, &port).await?;
        }
        Ok(Activation::Active(Vif { active: true, ..vif.clone() }))
    }

    async fn vifs(&self, owner: Option<&Owner>) -> DriverResult<Vec<Owned<Vif>>> {
        let mut marked = self.ports.marked(owner).await?;
        marked.retain(|(mark, _)| mark.parent_port().is_some());
        let mut vifs = self.ports.vifs(&marked, |_| PortAttachment::Macvlan).await?;
        for vif in &mut vifs {
            vif.resource.active = false;
        }
        Ok(vifs)
    }

    async fn unmarked_vifs(&self) -> DriverResult<Vec<Owned<Vif>>> {
        let ports = self.ports.kuryr_ports(KURYR_OWNER).await?;
        self.ports.vifs(&ports, |_| PortAttachment::Macvlan).await
    }
}
