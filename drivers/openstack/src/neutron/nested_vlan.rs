//! The driver `nested-vlan`: each pod has a subport of the trunk of its node. The VIF pool `nested` keeps such subports ready for new pods.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use staffetta_driver::{
    Activation, BulkVifDriver, BulkVifRequest, BulkVifResult, DriverError, Owned, Owner, PodVifDriver,
    PooledVifList, Reason, SecurityGroupId, Vif, VifClass, VifId, VifRequest,
};
use tracing::info;

use super::activation::{ActivationOutcome, Activations, MIN_INTERVAL, Repair, SUBPORT_FIELDS};
use super::bulk::{all_failed, create_batch, failed};
use super::nodes::host_of;
use super::options::PodVifNestedOptions;
use super::ownership::{PortOwnership, missing};
use super::ports::{MarkedPort, MarkedPorts};
use super::translate::{self, PortAttachment};
use super::trunks::Trunks;
use super::wire::{PortBody, SUBPORT_OWNER};
use crate::error::{DriverResult, StepName};
use crate::mark::{Nesting, Parent};
use crate::poll::PollState;

const REPAIR: StepName = "add a subport to its trunk again";

/// The driver `nested-vlan` of pod VIFs, which are subports of the trunk of the pod's node. It also creates subports in bulk for the VIF
/// pool `nested`. A pooled subport becomes ACTIVE without a pod, and stays so.
#[derive(Clone, Debug)]
pub struct NestedVlanDriver {
    ports: Arc<MarkedPorts>,
    trunks: Arc<Trunks>,
    activations: Arc<Activations>,
}

impl NestedVlanDriver {
    /// Creates the driver. `ports` is the client of the cluster's ports, which the VIF drivers share; `nested` names the subnets of the
    /// nodes.
    pub fn new(ports: Arc<MarkedPorts>, nested: PodVifNestedOptions) -> Self {
        let trunks = Arc::new(Trunks::new(ports.neutron.clone(), nested.worker_nodes_subnets));
        let activations = Arc::new(Activations::new(ports.neutron.clone(), SUBPORT_FIELDS));
        Self { ports, trunks, activations }
    }

    /// Removes subports from the trunk of `nesting` and deletes them. Returns the ports that could not be deleted, with their errors.
    async fn delete_subports(&self, nesting: &Nesting, ids: &[VifId]) -> Vec<(VifId, DriverError)> {
        if let Parent::Trunk { id, .. } = &nesting.parent
            && let Err(error) = self.trunks.detach(nesting.host, id, ids).await
        {
            return ids.iter().map(|id| (id.clone(), error.clone())).collect();
        }
        for id in ids {
            self.activations.forget(id);
        }
        // Detached, they serve no pod any more: a condition on their revision numbers would protect nothing.
        self.ports.delete_all(ids.iter().map(|id| (id.clone(), None))).await
    }

    /// Lists the ports whose ownership mark names this cluster and a trunk, or only those of `owner`. The map contains the VLAN ids of all
    /// subports of these trunks. Reserves the VLAN ids in the marks of the listed ports that are not subports yet.
    async fn subports(&self, owner: Option<&Owner>) -> DriverResult<(Vec<MarkedPort>, HashMap<VifId, u16>)> {
        let mut marked = self.ports.marked(owner).await?;
        marked.retain(|(mark, _)| mark.trunk().is_some());
        let ids: BTreeSet<&str> = marked.iter().filter_map(|(mark, _)| Some(mark.trunk()?.0)).collect();
        let ids: Vec<String> = ids.into_iter().map(str::to_owned).collect();
        // Trunks are read after the ports, so that a port without a trunk had none when it was listed.
        let vlans = self.trunks.subports(&ids).await?;
        let detached = marked.iter().filter(|(_, port)| !vlans.contains_key(&port.id));
        let reserved = detached.filter_map(|(mark, _)| {
            let (trunk, vlan) = mark.trunk()?;
            Some((trunk.to_owned(), vlan?))
        });
        self.trunks.set_reserved(reserved, owner.is_none());
        Ok((marked, vlans))
    }

    /// Creates up to `count` pooled subports: one call creates the ports, and one adds them to the trunk of the node at `host`.
    async fn create_pooled(&self, request: &BulkVifRequest, host: IpAddr, count: usize) -> BulkVifResult {
        let (ports, trunks) = (&self.ports, &self.trunks);
        let batch = ports.batches.begin();
        let reservation = match trunks.reserve_vlans(host, count).await {
            Ok(reservation) => reservation,
            Err(error) => return failed(error),
        };
        let parent = Parent::Trunk { id: reservation.trunk.id.clone(), vlan: None };
        let (nesting, count) = (Some(Nesting { host, parent }), reservation.vlans.len());
        let (created, failure) = ports.create_pooled(request, &batch, count, nesting, None).await;
        if created.is_empty() {
            return BulkVifResult { vifs: Vec::new(), failure };
        }
        let ids: Vec<VifId> = created.iter().map(|port| port.id.clone()).collect();
        let vlans = match trunks.attach(host, reservation, &ids).await {
            Ok(vlans) => vlans,
            // The list shows the incomplete ports, and they are deleted.
            Err(error) if error.ambiguous() => return failed(error),
            Err(error) => {
                let left = ports.delete_all(ids.into_iter().map(|id| (id, None))).await;
                return failed(if left.is_empty() { error } else { error.maybe_applied() });
            }
        };
        let vif = |port: &PortBody| {
            translate::vif_in(port, &request.subnets, PortAttachment::Vlan(vlans[&port.id]))
        };
        match created.iter().map(vif).collect() {
            Ok(vifs) => {
                for id in &ids {
                    self.activations.start(id);
                }
                BulkVifResult { vifs, failure }
            }
            Err(error) => failed(DriverError::maybe_applied(error)),
        }
    }

    /// Adds a port to its trunk if it is not a subport of it. With `redo`, a port that is a subport is removed and added again. Does
    /// nothing if the VIF has no VLAN id, or if the port's mark is not cached or names no trunk. The error is [`Reason::NotFound`] if
    /// another subport has the VLAN id.
    async fn repair(&self, vif: &Vif, redo: bool) -> DriverResult<()> {
        let Some(vlan) = vlan_of(vif) else { return Ok(()) };
        let nesting = self.ports.recorded(&vif.id).and_then(|mark| mark.nesting);
        let Some(Nesting { host, parent: Parent::Trunk { id: trunk, .. } }) = nesting else { return Ok(()) };
        let attached = self.trunks.subports(slice::from_ref(&trunk)).await?.contains_key(&vif.id);
        if attached && !redo {
            return Ok(());
        }
        if attached {
            info!(port = %vif.id, trunk, vlan, "a subport stays DOWN; removing it from its trunk and adding it again");
            self.trunks.detach(host, &trunk, slice::from_ref(&vif.id)).await?;
        }
        let subports = [(vif.id.clone(), vlan)];
        match self.ports.neutron.add_subports(REPAIR, &trunk, &subports).await {
            // It was added meanwhile; the next poll shows it.
            Err(error) if error.is("TrunkPortInUse") => Ok(()),
            Err(error) if error.is("DuplicateSubPort") => {
                let detail = format!(
                    "port {} is not a subport, and another port has its VLAN {vlan} on the trunk {trunk}",
                    vif.id
                );
                Err(DriverError::new(Reason::NotFound, REPAIR).detail(detail))
            }
            result => Ok(result?),
        }
    }
}

#[async_trait]
impl PodVifDriver for NestedVlanDriver {
    async fn request_vif(&self, request: &VifRequest) -> DriverResult<Vif> {
        let host = host_of(request)?;
        let reservation = self.trunks.reserve_vlans(host, 1).await?;
        let vlan = reservation.vlans.first().copied();
        let parent = Parent::Trunk { id: reservation.trunk.id.clone(), vlan };
        let port = self.ports.for_pod(request, Some(Nesting { host, parent }), None);
        let port = self.ports.create(port).await?;
        let attached = self.trunks.attach(host, reservation, slice::from_ref(&port.id)).await;
        let vif = attached.and_then(|vlans| {
            translate::vif_in(&port, &request.subnets, PortAttachment::Vlan(vlans[&port.id]))
        });
        match vif {
            Ok(vif) => {
                self.activations.start(&vif.id);
                Ok(vif)
            }
            // The port may be a subport. Its mark names the trunk and the VLAN.
            Err(error) if error.ambiguous() => Err(error),
            Err(error) => Err(self.ports.delete_unusable(&port.id, error).await),
        }
    }

    async fn release_vif(&self, owner: &Owner, vif: &Vif) -> DriverResult<()> {
        self.activations.forget(&vif.id);
        match self.ports.ownership(owner, vif).await? {
            PortOwnership::Missing | PortOwnership::Pooled | PortOwnership::Foreign => Ok(()),
            // The ports of Kuryr do not name their trunk.
            PortOwnership::Owned(None) => Ok(self.ports.delete(&vif.id).await?),
            PortOwnership::Owned(Some(nesting)) => {
                let left = self.delete_subports(&nesting, slice::from_ref(&vif.id)).await;
                left.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
            }
        }
    }

    async fn activate_vif(&self, owner: &Owner, vif: &Vif) -> DriverResult<Activation> {
        self.ports.check_owner(owner, vif).await?;
        let (poll_after, waited) = match self.activations.state(&vif.id).await? {
            PollState::Pending { poll_after, waited } => (poll_after, waited),
            PollState::Final(ActivationOutcome::Missing) => return Err(missing(vif)),
            PollState::Final(ActivationOutcome::Active) => {
                return Ok(Activation::Active(Vif { active: true, ..vif.clone() }));
            }
            // The binding of subports is not polled.
            PollState::Final(ActivationOutcome::BindingFailed) => (MIN_INTERVAL, Duration::ZERO),
        };
        let repair = self.activations.next_repair(&vif.id, waited);
        if repair != Repair::None {
            self.repair(vif, repair == Repair::Redo).await?;
            self.activations.set_repaired(&vif.id);
        }
        Ok(Activation::NotYet { poll_after })
    }

    async fn vifs(&self, owner: Option<&Owner>) -> DriverResult<Vec<Owned<Vif>>> {
        let (marked, vlans) = self.subports(owner).await?;
        self.ports.vifs(&marked, |marked| attachment(marked, &vlans)).await
    }

    async fn unmarked_vifs(&self) -> DriverResult<Vec<Owned<Vif>>> {
        let mut ports = self.ports.kuryr_ports(SUBPORT_OWNER).await?;
        let vlans = if ports.is_empty() { HashMap::new() } else { self.trunks.all_subports().await? };
        ports.retain(|(_, port)| vlans.contains_key(&port.id));
        self.ports.vifs(&ports, |marked| attachment(marked, &vlans)).await
    }

    fn vif_returned(&self, vif: &VifId) {
        self.activations.forget(vif);
    }
}

#[async_trait]
impl BulkVifDriver for NestedVlanDriver {
    fn host(&self, request: &VifRequest) -> DriverResult<String> {
        host_of(request).map(|host| host.to_string())
    }

    async fn create_vifs(&self, request: &BulkVifRequest) -> BulkVifResult {
        match request.key.host.parse() {
            Ok(host) => create_batch(request.count, |count| self.create_pooled(request, host, count)).await,
            Err(error) => {
                let detail = format!("`{}` is not an address of a node", request.key.host);
                failed(DriverError::new(Reason::Refused, "create ports").detail(detail).because(error))
            }
        }
    }

    async fn set_security_groups(&self, vif: &Vif, security_groups: &[SecurityGroupId]) -> DriverResult<()> {
        self.ports.set_groups(vif, security_groups).await
    }

    async fn delete_vifs(&self, vifs: &[Vif]) -> Vec<(VifId, DriverError)> {
        let pooled = match self.ports.pooled(vifs).await {
            Ok(pooled) => pooled,
            Err(error) => return all_failed(vifs, &error),
        };
        let mut by_trunk: HashMap<Nesting, Vec<VifId>> = HashMap::new();
        for (mark, port) in pooled {
            if let Some(nesting) = mark.nesting {
                by_trunk.entry(nesting).or_default().push(port.id);
            }
        }
        join_all(by_trunk.iter().map(|(nesting, ids)| self.delete_subports(nesting, ids))).await.concat()
    }

    async fn list_vifs(&self) -> DriverResult<PooledVifList> {
        let cutoff = self.ports.batches.cutoff();
        let (marked, vlans) = self.subports(None).await?;
        let is_complete = |port: &PortBody| vlans.contains_key(&port.id);
        self.ports.pooled_vifs(marked, cutoff, |marked| attachment(marked, &vlans), is_complete).await
    }

    fn is_active_unbound(&self, _: &Vif) -> bool {
        true
    }
}

/// Returns the attachment of a port as a subport, with its VLAN id in `vlans`, which contains the subports of the trunks. A port that
/// `vlans` does not contain gets the VLAN id in its ownership mark, or 0 if the mark names none.
fn attachment((mark, port): &MarkedPort, vlans: &HashMap<VifId, u16>) -> PortAttachment<'static> {
    let reserved = mark.trunk().and_then(|(_, vlan)| vlan);
    PortAttachment::Vlan(vlans.get(&port.id).copied().or(reserved).unwrap_or_default())
}

/// Returns the VLAN id of a nested VIF; `None` for a VIF of another class.
fn vlan_of(vif: &Vif) -> Option<u16> {
    match &vif.class {
        VifClass::VlanNested { vlan_id, .. } => Some(*vlan_id),
        _ => None,
    }
}
