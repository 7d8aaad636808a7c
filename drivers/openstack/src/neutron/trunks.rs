//! The trunks of nodes and their subports.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use staffetta_driver::{DriverError, Reason, SubnetId, VifId};

use super::api::NeutronApi;
use super::nodes::NodePorts;
use super::vlans::VlanPool;
use super::wire::PortBody;
use crate::error::{DriverResult, OpenStackError};
use crate::lock::lock;

/// The maximum number of attempts to find free VLANs while other processes use the same trunk.
const MAX_ATTEMPTS: usize = 4;
/// The retry delay if all VLANs of a trunk are in use.
const FULL_RETRY: Duration = Duration::from_secs(5);
const ATTACH: &str = "add subports to the trunk of the node";
const DETACH: &str = "remove subports from the trunk of the node";
const READ: &str = "read the trunk of the node";

/// The trunks of all nodes.
#[derive(Debug)]
pub(crate) struct Trunks {
    neutron: NeutronApi,
    nodes: NodePorts<NodeTrunk>,
    /// By trunk, the VLANs in the marks of ports that are not on it.
    reserved: Mutex<HashMap<String, Arc<BTreeSet<u16>>>>,
}

/// The trunk of a node.
#[derive(Debug)]
pub(crate) struct NodeTrunk {
    pub(crate) id: String,
    vlans: Mutex<VlanPool>,
}

/// VLANs for new subports; those without a subport are released when it is dropped.
pub(crate) struct VlanReservation {
    pub(crate) trunk: Arc<NodeTrunk>,
    pub(crate) vlans: Vec<u16>,
}

impl Trunks {
    pub(crate) fn new(neutron: NeutronApi, subnets: Vec<SubnetId>) -> Self {
        Self { nodes: NodePorts::new(neutron.clone(), subnets), neutron, reserved: Mutex::default() }
    }

    /// Reserves up to `count` VLANs of the node at `host`, at least one.
    pub(crate) async fn reserve_vlans(&self, host: IpAddr, count: usize) -> DriverResult<VlanReservation> {
        let trunk = self.nodes.of(host, trunk_of).await?;
        trunk.vlans().set_reserved(lock(&self.reserved).get(&trunk.id).cloned().unwrap_or_default());
        trunk.reserve(count)
    }

    /// Sets the VLANs in the marks of ports that are not on their trunk: with `all` only these, otherwise these in addition.
    pub(crate) fn set_reserved(&self, vlans: impl IntoIterator<Item = (String, u16)>, all: bool) {
        let mut reserved = lock(&self.reserved);
        if all {
            reserved.clear();
        }
        for (trunk, vlan) in vlans {
            Arc::make_mut(reserved.entry(trunk).or_default()).insert(vlan);
        }
    }

    /// Records that a subport with this VLAN is on the trunk of the node at `host`.
    pub(crate) fn set_attached(&self, host: IpAddr, vlan: u16) {
        if let Some(trunk) = self.nodes.known(host) {
            trunk.vlans().set_attached(vlan);
        }
    }

    /// Adds the ports to the trunk, with the reserved VLANs or, if another process uses one of them, with others.
    ///
    /// Returns the VLAN of each port. After an error that is not ambiguous, none of them is a subport or will be.
    pub(crate) async fn attach(
        &self,
        host: IpAddr,
        mut reservation: VlanReservation,
        ports: &[VifId],
    ) -> DriverResult<HashMap<VifId, u16>> {
        let mut last = None;
        for _ in 0..MAX_ATTEMPTS {
            let subports: Vec<_> = ports.iter().cloned().zip(reservation.vlans.iter().copied()).collect();
            let trunk = Arc::clone(&reservation.trunk);
            let error = match self.neutron.add_subports(ATTACH, &trunk.id, &subports).await {
                Ok(()) => {
                    reservation.keep(subports.len());
                    return Ok(subports.into_iter().collect());
                }
                Err(error) => error,
            };
            let unclear = error.rejection().is_none_or(|rejection| rejection.status >= 500);
            if !is_in_use(&error) && !unclear {
                if error.is("TrunkNotFound") {
                    // The trunk of the node was replaced.
                    self.nodes.forget(host);
                    let error = DriverError::from(error);
                    return Err(DriverError::new(Reason::Unavailable, ATTACH).because(error));
                }
                return Err(error.into());
            }
            // If the trunk cannot be read, the subports may have been added.
            let actual = self.read(&trunk).await.map_err(DriverError::maybe_applied)?;
            let attached: HashMap<VifId, u16> =
                ports.iter().filter_map(|id| Some((id.clone(), *actual.get(id)?))).collect();
            if attached.len() == ports.len() {
                return Ok(attached);
            }
            // The request may still take effect.
            if unclear || !attached.is_empty() {
                return Err(DriverError::from(error).maybe_applied());
            }
            // The new VLANs are reserved before the old ones are released, so that they differ.
            reservation = trunk.reserve(ports.len())?;
            if reservation.vlans.len() < ports.len() {
                return Err(trunk_full(&trunk.id));
            }
            last = Some(error);
        }
        Err(last.map_or_else(|| trunk_full(&reservation.trunk.id), DriverError::from))
    }

    /// Removes those of the ports that are on the trunk of the node at `host`, unless the trunk does not exist.
    pub(crate) async fn detach(&self, host: IpAddr, trunk: &str, ports: &[VifId]) -> DriverResult<()> {
        match self.neutron.remove_subports(DETACH, trunk, ports).await {
            Err(error) if error.is("SubPortNotFound") => {
                // If one of them is not on the trunk, Neutron removes none.
                let actual = self.subports(&[trunk.to_owned()]).await?;
                let attached: Vec<VifId> =
                    ports.iter().filter(|id| actual.contains_key(id)).cloned().collect();
                if !attached.is_empty() {
                    self.neutron.remove_subports(DETACH, trunk, &attached).await?;
                }
            }
            Err(error) if error.is_not_found() => self.nodes.forget(host),
            result => result?,
        }
        Ok(())
    }

    /// Releases the VLANs of deleted subports of the node at `host`.
    pub(crate) fn release(&self, host: IpAddr, vlans: impl IntoIterator<Item = u16>) {
        if let Some(trunk) = self.nodes.known(host) {
            let mut pool = trunk.vlans();
            vlans.into_iter().for_each(|vlan| pool.release(vlan));
        }
    }

    /// The VLANs of all subports of these trunks.
    pub(crate) async fn subports(&self, trunks: &[String]) -> DriverResult<HashMap<VifId, u16>> {
        let trunks = self.neutron.trunks_by_id(READ, trunks).await?;
        let subports = trunks.into_iter().flat_map(|trunk| trunk.sub_ports);
        Ok(subports.map(|subport| (subport.port_id, subport.segmentation_id)).collect())
    }

    async fn read(&self, trunk: &NodeTrunk) -> DriverResult<HashMap<VifId, u16>> {
        let actual = self.subports(std::slice::from_ref(&trunk.id)).await?;
        trunk.vlans().set_used(actual.values().copied());
        Ok(actual)
    }
}

impl NodeTrunk {
    /// Reserves up to `count` VLANs, at least one.
    pub(crate) fn reserve(self: &Arc<Self>, count: usize) -> DriverResult<VlanReservation> {
        let mut pool = self.vlans();
        let vlans: Vec<u16> = std::iter::from_fn(|| pool.reserve()).take(count).collect();
        drop(pool);
        let reservation = VlanReservation { trunk: Arc::clone(self), vlans };
        if reservation.vlans.is_empty() { Err(trunk_full(&self.id)) } else { Ok(reservation) }
    }

    fn vlans(&self) -> MutexGuard<'_, VlanPool> {
        lock(&self.vlans)
    }
}

impl VlanReservation {
    /// Assigns the first `count` VLANs to subports; the others are released on drop.
    fn keep(&mut self, count: usize) {
        let mut pool = self.trunk.vlans();
        self.vlans.drain(..count).for_each(|vlan| pool.set_attached(vlan));
    }
}

impl Drop for VlanReservation {
    fn drop(&mut self) {
        let mut pool = self.trunk.vlans();
        self.vlans.drain(..).for_each(|vlan| pool.cancel(vlan));
    }
}

fn trunk_of(port: PortBody) -> DriverResult<NodeTrunk> {
    let PortBody { id, trunk_details, .. } = port;
    let trunk = trunk_details.filter(|trunk| !trunk.id.is_empty()).ok_or_else(|| {
        let detail = format!("the port {id} of the node is not the parent of a trunk");
        DriverError::new(Reason::Unsupported, READ).detail(detail)
    })?;
    let used = trunk.sub_ports.iter().map(|port| port.segmentation_id);
    Ok(NodeTrunk { id: trunk.id, vlans: Mutex::new(VlanPool::new(used)) })
}

/// Returns `true` if another subport has the VLAN, or the port is a subport already.
fn is_in_use(error: &OpenStackError) -> bool {
    error.is("DuplicateSubPort") || error.is("TrunkPortInUse") || error.is("PortInUseAsSubPort")
}

/// The error of a trunk without free VLANs. It has a delay, since it concerns one node and not the quota of the project.
fn trunk_full(trunk: &str) -> DriverError {
    let detail = format!("all 4094 VLANs of the trunk {trunk} are in use");
    DriverError::new(Reason::Quota, ATTACH).detail(detail).after(FULL_RETRY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_vlans_without_a_subport_are_released() {
        let trunk = Arc::new(NodeTrunk { id: "t".into(), vlans: Mutex::new(VlanPool::new([])) });
        let mut reservation = trunk.reserve(5).unwrap();
        reservation.keep(2);
        drop(reservation);
        assert_eq!(trunk.reserve(5000).unwrap().vlans.len(), 4094 - 2);
    }

    #[test]
    fn a_full_trunk_is_not_an_exceeded_quota_of_the_project() {
        let trunk = Arc::new(NodeTrunk { id: "t".into(), vlans: Mutex::new(VlanPool::new(1..=4094)) });
        let full = trunk.reserve(1).map(drop).unwrap_err();
        assert_eq!((full.reason(), full.retry_after()), (Reason::Quota, Some(FULL_RETRY)));
    }
}
