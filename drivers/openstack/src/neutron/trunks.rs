//! The trunks of nodes, and the subports on them.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use staffetta_driver::{DriverError, Reason, SubnetId, VifId};

use super::api::Neutron;
use super::nodes::{NodePort, Nodes};
use super::vlans::Vlans;
use super::wire::{SubPort, Trunk};
use crate::error::OpenStackError;

/// How often VLANs are chosen for the same ports, when others take the chosen ones at the same time.
const ATTEMPTS: usize = 4;
/// The time until it is looked again whether a VLAN has become free.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
const ATTACH: &str = "add subports to the trunk of the node";
const DETACH: &str = "remove subports from the trunk of the node";
const READ: &str = "read the trunk of the node";

/// The trunks of all nodes.
#[derive(Debug)]
pub(crate) struct Trunks {
    neutron: Neutron,
    nodes: Nodes<TrunkOf>,
    /// By trunk, the VLANs that are meant for ports which somebody left without it.
    meant: Mutex<HashMap<String, Arc<BTreeSet<u16>>>>,
}

/// The trunk of a node.
#[derive(Debug)]
pub(crate) struct TrunkOf {
    pub(crate) id: String,
    vlans: Mutex<Vlans>,
}

/// VLANs that are promised to ports. Those that no port got in the end are given back.
pub(crate) struct Promise {
    pub(crate) trunk: Arc<TrunkOf>,
    pub(crate) vlans: Vec<u16>,
}

impl Trunks {
    pub(crate) fn new(neutron: Neutron, subnets: Vec<SubnetId>) -> Self {
        Self { nodes: Nodes::new(neutron.clone(), subnets), neutron, meant: Mutex::default() }
    }

    /// Promises as many VLANs of the node at `host` as are free, up to `count`; at least one.
    pub(crate) async fn promise(&self, host: IpAddr, count: usize) -> Result<Promise, DriverError> {
        let trunk = self.nodes.of(host, trunk_of).await?;
        trunk.vlans().reserve(self.meant().get(&trunk.id).cloned().unwrap_or_default());
        trunk.promise(count)
    }

    /// These VLANs of trunks are meant for ports that are on no trunk yet, and promised to no other port: with `all` just
    /// these, else these too.
    pub(crate) fn reserve(&self, vlans: impl IntoIterator<Item = (String, u16)>, all: bool) {
        let mut meant = self.meant();
        if all {
            meant.clear();
        }
        for (trunk, vlan) in vlans {
            Arc::make_mut(meant.entry(trunk).or_default()).insert(vlan);
        }
    }

    /// The subport with this VLAN is at the trunk of the node at `host`.
    pub(crate) fn attached(&self, host: IpAddr, vlan: u16) {
        if let Some(trunk) = self.nodes.known(host) {
            trunk.vlans().attached(vlan);
        }
    }

    /// Adds the ports to the trunk, with the VLANs that are promised, or with others when somebody else was faster.
    ///
    /// Answers the VLAN of each port. After an error that is not ambiguous, none is a subport, and none will be.
    pub(crate) async fn attach(
        &self,
        host: IpAddr,
        mut promise: Promise,
        ports: &[VifId],
    ) -> Result<HashMap<VifId, u16>, DriverError> {
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let subports: Vec<SubPort> =
                ports.iter().zip(&promise.vlans).map(|(id, vlan)| SubPort::new(id.clone(), *vlan)).collect();
            let trunk = Arc::clone(&promise.trunk);
            let error = match self.neutron.add_subports(ATTACH, &trunk.id, &subports).await {
                Ok(()) => {
                    promise.keep(&subports);
                    return Ok(subports
                        .into_iter()
                        .map(|port| (port.port_id, port.segmentation_id))
                        .collect());
                }
                Err(error) => error,
            };
            let unsure = error.refusal().is_none_or(|refusal| refusal.status >= 500);
            if !taken(&error) && !unsure {
                if error.is("TrunkNotFound") {
                    self.nodes.forget(host);
                    // The node has another one by now.
                    return Err(
                        DriverError::new(Reason::Unavailable, ATTACH).because(DriverError::from(error))
                    );
                }
                return Err(error.into());
            }
            // Who does not learn what came of it must not think that nothing did.
            let shown = self.read(&trunk).await.map_err(DriverError::maybe_done)?;
            let attached: HashMap<VifId, u16> =
                ports.iter().filter_map(|id| Some((id.clone(), *shown.get(id)?))).collect();
            if attached.len() == ports.len() {
                return Ok(attached);
            }
            // It may still take effect, and whoever asks again would not know.
            if unsure || !attached.is_empty() {
                return Err(DriverError::from(error).maybe_done());
            }
            // Those that were promised first are given back when the new ones are there, so that these are others.
            promise = trunk.promise(ports.len())?;
            if promise.vlans.len() < ports.len() {
                return Err(full(&trunk.id));
            }
            last = Some(error);
        }
        Err(last.map_or_else(|| full(&promise.trunk.id), DriverError::from))
    }

    /// Takes the ports off the trunk of the node at `host`; those that are not on it are off.
    pub(crate) async fn detach(&self, host: IpAddr, trunk: &str, ports: &[VifId]) -> Result<(), DriverError> {
        if !self.detach_from(trunk, ports).await? {
            self.nodes.forget(host);
        }
        Ok(())
    }

    /// Takes the ports off the trunk; those that are not on it are off. Answers whether there is such a trunk.
    pub(crate) async fn detach_from(&self, trunk: &str, ports: &[VifId]) -> Result<bool, DriverError> {
        match self.neutron.remove_subports(DETACH, trunk, ports).await {
            Ok(()) => Ok(true),
            Err(error) if error.is("SubPortNotFound") => {
                // One of them is missing, and then none was taken off.
                let shown = self.subports(&[trunk.to_owned()]).await?;
                let still: Vec<VifId> = ports.iter().filter(|id| shown.contains_key(id)).cloned().collect();
                if !still.is_empty() {
                    self.neutron.remove_subports(DETACH, trunk, &still).await?;
                }
                Ok(true)
            }
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The VLANs of these ports of the node at `host` are free again.
    pub(crate) fn give_back(&self, host: IpAddr, vlans: impl IntoIterator<Item = u16>) {
        if let Some(trunk) = self.nodes.known(host) {
            let mut known = trunk.vlans();
            vlans.into_iter().for_each(|vlan| known.give_back(vlan));
        }
    }

    /// The VLANs of all subports of these trunks.
    pub(crate) async fn subports(&self, trunks: &[String]) -> Result<HashMap<VifId, u16>, DriverError> {
        let trunks = self.neutron.trunks_by_id(READ, trunks).await?;
        Ok(trunks
            .into_iter()
            .flat_map(|trunk| trunk.sub_ports)
            .map(|port| (port.port_id, port.segmentation_id))
            .collect())
    }

    /// The trunk to which somebody added the port. All trunks are looked through: it is for ports that
    /// do not say themselves of which they are.
    pub(crate) async fn with(&self, port: &VifId) -> Result<Option<String>, DriverError> {
        let all = self.neutron.trunks(READ).await?;
        let has = |trunk: &Trunk| trunk.sub_ports.iter().any(|subport| subport.port_id == *port);
        Ok(all.into_iter().find(has).map(|trunk| trunk.id))
    }

    fn meant(&self) -> MutexGuard<'_, HashMap<String, Arc<BTreeSet<u16>>>> {
        self.meant.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn read(&self, trunk: &TrunkOf) -> Result<HashMap<VifId, u16>, DriverError> {
        let shown = self.subports(std::slice::from_ref(&trunk.id)).await?;
        trunk.vlans().show(shown.values().copied());
        Ok(shown)
    }
}

impl TrunkOf {
    /// Promises up to `count` VLANs; at least one.
    pub(crate) fn promise(self: &Arc<Self>, count: usize) -> Result<Promise, DriverError> {
        let mut free = self.vlans();
        let vlans: Vec<u16> = std::iter::from_fn(|| free.take()).take(count).collect();
        drop(free);
        if vlans.is_empty() { Err(full(&self.id)) } else { Ok(Promise { trunk: Arc::clone(self), vlans }) }
    }

    fn vlans(&self) -> MutexGuard<'_, Vlans> {
        self.vlans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Promise {
    /// These ports have theirs now; those for which there was no port are given back.
    fn keep(&mut self, subports: &[SubPort]) {
        let mut known = self.trunk.vlans();
        for SubPort { segmentation_id: vlan, .. } in subports {
            known.attached(*vlan);
            self.vlans.retain(|promised| promised != vlan);
        }
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        let mut known = self.trunk.vlans();
        self.vlans.drain(..).for_each(|vlan| known.withdraw(vlan));
    }
}

fn trunk_of(port: NodePort) -> Result<TrunkOf, DriverError> {
    let NodePort { id, trunk } = port;
    let trunk = trunk.ok_or_else(|| {
        let detail = format!("the port {id} of the node is no parent of a trunk");
        DriverError::new(Reason::Unsupported, READ).detail(detail)
    })?;
    let shown = trunk.sub_ports.iter().map(|port| port.segmentation_id);
    Ok(TrunkOf { id: trunk.trunk_id, vlans: Mutex::new(Vlans::new(shown)) })
}

/// Whether another subport has the VLAN, or the port is a subport already.
fn taken(error: &OpenStackError) -> bool {
    error.is("DuplicateSubPort") || error.is("TrunkPortInUse") || error.is("PortInUseAsSubPort")
}

fn full(trunk: &str) -> DriverError {
    let detail = format!("all 4094 VLANs of the trunk {trunk} are in use");
    // With a time, for it is this node's affair alone: other nodes of the project have trunks of their own.
    DriverError::new(Reason::Quota, ATTACH).detail(detail).after(LOOK_AGAIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vlans_for_which_there_was_no_port_are_free_again() {
        let trunk = Arc::new(TrunkOf { id: "t".into(), vlans: Mutex::new(Vlans::new([])) });
        let mut promise = trunk.promise(5).unwrap();
        let subports: Vec<_> =
            promise.vlans.iter().take(2).map(|vlan| SubPort::new("p".into(), *vlan)).collect();
        promise.keep(&subports);
        drop(promise);
        assert_eq!(trunk.promise(5000).unwrap().vlans.len(), 4094 - 2);
    }

    #[test]
    fn a_trunk_that_is_full_is_no_quota_of_the_project() {
        let trunk = Arc::new(TrunkOf { id: "t".into(), vlans: Mutex::new(Vlans::new(1..=4094)) });
        let full = trunk.promise(1).map(drop).unwrap_err();
        assert_eq!((full.reason(), full.retry_after()), (Reason::Quota, Some(LOOK_AGAIN)));
    }
}
