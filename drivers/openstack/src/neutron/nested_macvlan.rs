//! The driver `nested-macvlan`: each pod has a port whose addresses the port of its node may use.

use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;
use staffetta_driver::{Activation, DriverError, Marked, Owner, PodVifDriver, PortId, Vif, VifRequest};

use super::address_pairs::{AddressPairs, Edit};
use super::mark::{Mark, Nesting, Parent};
use super::nodes::{NodePort, Nodes, host_of};
use super::ports::{Ports, Standing};
use super::translate::{self, Kind};
use super::vif::no_port;
use super::wire::{AddressPair, Port, as_port_id};
use crate::cloud::well_formed;

const READ: &str = "read the addresses of a port";

/// The driver `nested-macvlan`. What it makes is active at once: the node's port is.
#[derive(Clone, Debug)]
pub struct NestedMacvlanDriver(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    ports: Ports,
    nodes: Nodes<PortId>,
    pairs: AddressPairs,
}

impl NestedMacvlanDriver {
    pub(crate) fn over(ports: Ports, nodes: Nodes<PortId>, pairs: AddressPairs) -> Self {
        Self(Arc::new(Inner { ports, nodes, pairs }))
    }

    /// Lets the port of the node use the addresses of `port`.
    async fn allow(&self, parent: &PortId, port: &Port) -> Result<(), DriverError> {
        self.0.pairs.edit(parent, Edit::Add(pairs(port))).await
    }
}

#[async_trait]
impl PodVifDriver for NestedMacvlanDriver {
    async fn request_vif(&self, request: &VifRequest) -> Result<Vif, DriverError> {
        let Inner { ports, nodes, .. } = &*self.0;
        let host = host_of(request)?;
        let parent = nodes.of(host, |NodePort { id, .. }| Ok(as_port_id(&id))).await?;
        let nesting = Nesting { host, parent: Parent::Port(PortId::clone(&parent)) };
        let port = ports.make(ports.for_pod(request, Some(nesting), None)).await?;
        let allowed = self.allow(&parent, &port).await;
        match allowed.and_then(|()| translate::vif_in(&port, &request.subnets, Kind::Macvlan)) {
            Ok(vif) => Ok(Vif { active: true, ..vif }),
            Err(error) => {
                nodes.forget(host);
                // A pair whose port is gone would let the node use an address that is another's by then.
                match self.0.pairs.edit(&parent, Edit::Remove(pairs(&port))).await {
                    Ok(()) => Err(ports.undo(&port.id, error).await),
                    Err(_) => Err(error.maybe_done()),
                }
            }
        }
    }

    async fn release_vif(&self, owner: &Owner, vif: &Vif) -> Result<(), DriverError> {
        let ports = &self.0.ports;
        let Standing::Ours(nesting) = ports.standing(owner, vif).await? else { return Ok(()) };
        if let Some(Nesting { parent: Parent::Port(parent), .. }) = nesting {
            let port = ports.neutron.port(READ, &vif.id).await?;
            // When somebody removed the port, its pairs are there all the same.
            let pairs =
                port.map_or_else(|| pairs_of(vif.ips(), &vif.address.to_string()), |port| pairs(&port));
            self.0.pairs.edit(&parent, Edit::Remove(pairs)).await?;
        }
        Ok(ports.remove(&vif.id).await?)
    }

    /// Only a VIF that was found by its mark is not active: whoever made it may have been stopped before the port of the
    /// node could use it.
    async fn activate_vif(&self, vif: &Vif) -> Result<Activation, DriverError> {
        let known = well_formed(vif.id.as_str());
        let port = if known { self.0.ports.neutron.port(READ, &vif.id).await? } else { None };
        let port = port.ok_or_else(|| no_port(vif))?;
        // The annotation may name any port: that of another cluster is not given addresses here.
        let mark = port.mark().filter(|mark| mark.cluster == self.0.ports.cluster);
        if let Some(Nesting { parent: Parent::Port(parent), .. }) = mark.and_then(|mark| mark.nesting) {
            self.allow(&parent, &port).await?;
        }
        Ok(Activation::Active(Vif { active: true, ..vif.clone() }))
    }

    async fn vifs(&self, owner: Option<&Owner>) -> Result<Vec<Marked<Vif>>, DriverError> {
        let ports = &self.0.ports;
        let mut marked = ports.marked(owner).await?;
        let ours = |mark: &Mark| matches!(mark.nesting, Some(Nesting { parent: Parent::Port(_), .. }));
        marked.retain(|(mark, _)| ours(mark));
        let subnets = ports.subnets(&marked).await?;
        let vif = |(mark, port): (Mark, Port)| {
            let thing = Vif { active: false, ..translate::listed(&port, &subnets, Kind::Macvlan) };
            Marked { owner: mark.owner().cloned(), thing }
        };
        Ok(marked.into_iter().map(vif).collect())
    }
}

/// The addresses of a port, as another one is allowed to use them.
fn pairs(port: &Port) -> Vec<AddressPair> {
    let addresses = port.fixed_ips.iter().filter_map(|fixed| fixed.ip_address);
    pairs_of(addresses, &port.mac_address)
}

fn pairs_of(addresses: impl Iterator<Item = IpAddr>, hardware: &str) -> Vec<AddressPair> {
    addresses
        .map(|ip| AddressPair { ip_address: ip.to_string(), mac_address: Some(hardware.to_owned()) })
        .collect()
}
