//! The trunks of nodes, and the subports on them.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use staffetta_driver::{DriverError, Reason, SubnetId, VifId};

use super::api::NeutronApi;
use super::nodes::NodePorts;
use super::vlans::VlanPool;
use super::wire::{PortBody, TrunkBody};
use crate::error::{DriverResult, OpenStackError};

/// The maximum number of attempts to find free VLAN ids while other programs use the same trunk.
const MAX_ATTEMPTS: usize = 4;
/// The retry delay if all VLAN ids of a trunk are in use.
const FULL_RETRY: Duration = Duration::from_secs(5);
const ATTACH: &str = "add subports to the trunk of the node";
const DETACH: &str = "remove subports from the trunk of the node";
const READ: &str = "read the trunk of the node";

/// The trunks of all nodes, with the VLAN ids in use.
#[derive(Debug)]
pub(crate) struct Trunks {
    neutron: NeutronApi,
    nodes: NodePorts<NodeTrunk>,
    /// For each trunk, the VLAN ids in the ownership marks of ports that are not its subports yet.
    reserved: Mutex<HashMap<String, BTreeSet<u16>>>,
}

/// The trunk of a node, with its VLAN ids.
#[derive(Debug)]
pub(crate) struct NodeTrunk {
    /// The id of the trunk.
    pub(crate) id: String,
    vlans: Mutex<VlanPool>,
}

/// VLAN ids that are reserved for new subports. Dropping it releases the ids that no subport got.
pub(crate) struct VlanReservation {
    /// The trunk on which the ids are reserved.
    pub(crate) trunk: Arc<NodeTrunk>,
    /// The reserved VLAN ids that no subport has got.
    pub(crate) vlans: Vec<u16>,
}

impl Trunks {
    /// Creates an empty cache of trunks. The nodes have their addresses in `subnets`.
    pub(crate) fn new(neutron: NeutronApi, subnets: Vec<SubnetId>) -> Self {
        Self { nodes: NodePorts::new(neutron.clone(), subnets), neutron, reserved: Mutex::default() }
    }

    /// Reserves at least one and up to `count` VLAN ids on the trunk of the node at `host`. The error is `Unsupported` if the node's port
    /// has no trunk, and `Quota` if no VLAN id is free.
    pub(crate) async fn reserve_vlans(&self, host: IpAddr, count: usize) -> DriverResult<VlanReservation> {
        let trunk = self.nodes.of(host, trunk_of).await?;
        let reservation = self.reserve(&trunk, count);
        if reservation.is_ok() {
            return reservation;
        }
        // The ids of subports that were deleted since the last read are free.
        self.read(&trunk).await?;
        self.reserve(&trunk, count)
    }

    /// Reserves VLAN ids on a trunk, except those in the ownership marks of ports that are not subports yet.
    fn reserve(&self, trunk: &Arc<NodeTrunk>, count: usize) -> DriverResult<VlanReservation> {
        let reserved = self.reserved.lock();
        trunk.reserve(count, reserved.get(&trunk.id).unwrap_or(&BTreeSet::new()))
    }

    /// Records the VLAN ids in the ownership marks of ports that are not subports yet, each with the id of its trunk. With `all`, these
    /// replace those recorded before; otherwise they are added.
    pub(crate) fn set_reserved(&self, vlans: impl IntoIterator<Item = (String, u16)>, all: bool) {
        let mut reserved = self.reserved.lock();
        if all {
            reserved.clear();
        }
        for (trunk, vlan) in vlans {
            reserved.entry(trunk).or_default().insert(vlan);
        }
    }

    /// Adds the ports to the trunk of the node at `host`, with the reserved VLAN ids. If another program uses one of these ids, other ids
    /// are reserved.
    ///
    /// Returns the VLAN id of each port. If it returns an error that is not ambiguous, none of the ports is a subport, and none will become
    /// one.
    pub(crate) async fn attach(
        &self,
        host: IpAddr,
        mut reservation: VlanReservation,
        ports: &[VifId],
    ) -> DriverResult<HashMap<VifId, u16>> {
        let mut attempts = 0;
        loop {
            attempts += 1;
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
            if attempts == MAX_ATTEMPTS {
                return Err(error.into());
            }
            // The new VLANs are reserved before the old ones are released, so that they differ.
            reservation = self.reserve(&trunk, ports.len())?;
            if reservation.vlans.len() < ports.len() {
                return Err(trunk_full(&trunk.id));
            }
        }
    }

    /// Removes the ports from the trunk of the node at `host`. Ports that are not subports of the trunk, or a trunk that does not exist,
    /// are no errors.
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

    /// Reads the VLAN ids of all subports of these trunks.
    pub(crate) async fn subports(&self, trunks: &[String]) -> DriverResult<HashMap<VifId, u16>> {
        Ok(vlans_of(self.neutron.trunks_by_id(READ, trunks).await?))
    }

    /// Reads the VLAN ids of all subports of all trunks.
    pub(crate) async fn all_subports(&self) -> DriverResult<HashMap<VifId, u16>> {
        Ok(vlans_of(self.neutron.trunks(READ).await?))
    }

    /// Reads the VLAN ids of all subports of a trunk, and records them as used.
    async fn read(&self, trunk: &NodeTrunk) -> DriverResult<HashMap<VifId, u16>> {
        let actual = self.subports(std::slice::from_ref(&trunk.id)).await?;
        trunk.vlans.lock().set_used(actual.values().copied());
        Ok(actual)
    }
}

/// Returns the VLAN ids of the subports of these trunks.
fn vlans_of(trunks: Vec<TrunkBody>) -> HashMap<VifId, u16> {
    let subports = trunks.into_iter().flat_map(|trunk| trunk.sub_ports);
    subports.map(|subport| (subport.port_id, subport.segmentation_id)).collect()
}

impl NodeTrunk {
    /// Reserves at least one and up to `count` VLAN ids that are not among `reserved`. If none is free, the error is `Quota`, with a retry
    /// delay.
    fn reserve(self: &Arc<Self>, count: usize, reserved: &BTreeSet<u16>) -> DriverResult<VlanReservation> {
        let mut pool = self.vlans.lock();
        let vlans: Vec<u16> = std::iter::from_fn(|| pool.reserve(reserved)).take(count).collect();
        drop(pool);
        let reservation = VlanReservation { trunk: Arc::clone(self), vlans };
        if reservation.vlans.is_empty() { Err(trunk_full(&self.id)) } else { Ok(reservation) }
    }
}

impl VlanReservation {
    /// Records the first `count` VLAN ids as used by subports. The others are released when the reservation is dropped.
    fn keep(&mut self, count: usize) {
        let mut pool = self.trunk.vlans.lock();
        self.vlans.drain(..count).for_each(|vlan| pool.set_attached(vlan));
    }
}

impl Drop for VlanReservation {
    fn drop(&mut self) {
        let mut pool = self.trunk.vlans.lock();
        self.vlans.drain(..).for_each(|vlan| pool.cancel(vlan));
    }
}

/// Returns the trunk of the node's port. Fails with [`Reason::Unsupported`] if the port has no trunk.
fn trunk_of(port: PortBody) -> DriverResult<NodeTrunk> {
    let PortBody { id, trunk_details, .. } = port;
    let trunk = trunk_details.filter(|trunk| !trunk.id.is_empty()).ok_or_else(|| {
        let detail = format!("the port {id} of the node is not the parent of a trunk");
        DriverError::new(Reason::Unsupported, READ).detail(detail)
    })?;
    let used = trunk.sub_ports.iter().map(|port| port.segmentation_id);
    Ok(NodeTrunk { id: trunk.id, vlans: Mutex::new(VlanPool::new(used)) })
}

/// Returns `true` if Neutron rejected a new subport because another subport has its VLAN id, or because the port already is a subport.
fn is_in_use(error: &OpenStackError) -> bool {
    error.is("DuplicateSubPort") || error.is("TrunkPortInUse") || error.is("PortInUseAsSubPort")
}

/// Returns the error of a trunk without a free VLAN id. It has a retry delay, because it concerns one node only and not the quota of the
/// project.
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
        let mut reservation = trunk.reserve(5, &BTreeSet::new()).unwrap();
        reservation.keep(2);
        drop(reservation);
        assert_eq!(trunk.reserve(5000, &BTreeSet::new()).unwrap().vlans.len(), 4094 - 2);
    }

    #[test]
    fn a_full_trunk_is_not_an_exceeded_quota_of_the_project() {
        let trunk = Arc::new(NodeTrunk { id: "t".into(), vlans: Mutex::new(VlanPool::new(1..=4094)) });
        let full = trunk.reserve(1, &BTreeSet::new()).map(drop).unwrap_err();
        assert_eq!((full.reason(), full.retry_after()), (Reason::Quota, Some(FULL_RETRY)));
    }
}
