//! The driver `nested-vlan`: each pod has a subport of its node's trunk.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use staffetta_driver::{
    Activation, DriverError, Marked, Owner, PodVifDriver, Reason, Vif, VifClass, VifId, VifRequest,
};
use tracing::info;

use super::activation::{Activations, Progress};
use super::board::{FIRST_STEP, Mending};
use super::mark::{Mark, Nesting, Parent};
use super::nodes::host_of;
use super::ports::{Ports, Standing};
use super::translate::{self, Kind};
use super::trunks::Trunks;
use super::vif::no_port;
use super::wire::{Port, SubPort};
use crate::cloud::well_formed;

const MEND: &str = "add a subport to its trunk again";

/// The driver `nested-vlan`.
#[derive(Clone, Debug)]
pub struct NestedVlanDriver(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    ports: Ports,
    trunks: Trunks,
    activations: Activations,
}

impl NestedVlanDriver {
    pub(crate) fn over(ports: Ports, trunks: Trunks) -> Self {
        let activations = Activations::of_subports(ports.neutron.clone());
        Self(Arc::new(Inner { ports, trunks, activations }))
    }

    pub(crate) fn ports(&self) -> &Ports {
        &self.0.ports
    }

    pub(crate) fn trunks(&self) -> &Trunks {
        &self.0.trunks
    }

    /// Takes ports off their trunk and removes them, as far as that is possible. Answers what is still there.
    pub(crate) async fn dismantle(
        &self,
        nesting: &Nesting,
        ids: &[VifId],
        vlans: &HashMap<VifId, u16>,
    ) -> Vec<(VifId, DriverError)> {
        if let Parent::Trunk { id, .. } = &nesting.parent
            && let Err(error) = self.0.trunks.detach(nesting.host, id, ids).await
        {
            return ids.iter().map(|id| (id.clone(), error.clone())).collect();
        }
        let removals = ids.iter().map(|id| async { (id.clone(), self.remove_port(id).await) });
        let removed = futures_util::future::join_all(removals).await;
        let mut left = Vec::new();
        for (id, removed) in removed {
            match removed {
                Ok(()) => {
                    self.0.activations.forget(&id);
                    self.0.trunks.give_back(nesting.host, vlans.get(&id).copied());
                }
                Err(error) => left.push((id, error)),
            }
        }
        left
    }

    /// What was seen of a port says nothing of it any more.
    pub(crate) fn unsee(&self, id: &VifId) {
        self.0.activations.forget(id);
    }

    /// The wait for a port that was made just now begins.
    pub(crate) fn made(&self, id: &VifId) {
        self.0.activations.made(id);
    }

    /// Removes a port. When it is on a trunk of which nothing was known, it is taken off that first.
    async fn remove_port(&self, id: &VifId) -> Result<(), DriverError> {
        match self.0.ports.remove(id).await {
            Err(error) if error.is("PortInUseAsSubPort") => {
                if let Some(trunk) = self.0.trunks.with(id).await? {
                    self.0.trunks.detach_from(&trunk, std::slice::from_ref(id)).await?;
                }
                Ok(self.0.ports.remove(id).await?)
            }
            result => Ok(result?),
        }
    }

    /// Adds the port to its trunk when it is not there; with `anew` even when it is.
    async fn mend(&self, vif: &Vif, anew: bool) -> Result<(), DriverError> {
        let Some(vlan) = vlan_of(vif) else { return Ok(()) };
        let nesting = self.0.ports.nesting(&vif.id).await?;
        let Some(Nesting { host, parent: Parent::Trunk { id: trunk, .. } }) = nesting else { return Ok(()) };
        let trunks = &self.0.trunks;
        let shown = trunks.subports(std::slice::from_ref(&trunk)).await?;
        let there = shown.contains_key(&vif.id);
        if there && anew {
            info!(port = %vif.id, trunk, vlan, "a subport stays DOWN, it is detached and attached again");
            trunks.detach(host, &trunk, std::slice::from_ref(&vif.id)).await?;
        }
        if !there || anew {
            let subports = [SubPort::new(vif.id.clone(), vlan)];
            let added = self.0.ports.neutron.add_subports(MEND, &trunk, &subports);
            match added.await {
                Ok(()) => trunks.attached(host, vlan),
                // Somebody else has just done it; the next look tells.
                Err(error) if error.is("TrunkPortInUse") => {}
                Err(error) if error.is("DuplicateSubPort") => return Err(overtaken(vif, &trunk, vlan)),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

#[async_trait]
impl PodVifDriver for NestedVlanDriver {
    async fn request_vif(&self, request: &VifRequest) -> Result<Vif, DriverError> {
        let Inner { ports, trunks, .. } = &*self.0;
        let host = host_of(request)?;
        let promise = trunks.promise(host, 1).await?;
        let parent = Parent::Trunk { id: promise.trunk.id.clone(), vlan: promise.vlans.first().copied() };
        let port = ports.make(ports.for_pod(request, Some(Nesting { host, parent }), None)).await?;
        let attached = trunks.attach(host, promise, std::slice::from_ref(&port.id)).await;
        let vif = attached.and_then(|vlans| {
            let vlan = vlans.get(&port.id).copied().unwrap_or_default();
            translate::vif_in(&port, &request.subnets, Kind::Vlan(vlan))
        });
        match vif {
            Ok(vif) => {
                self.made(&vif.id);
                Ok(vif)
            }
            // Whether it is a subport is not known. It says itself to which trunk and VLAN it belongs.
            Err(error) if error.ambiguous() => Err(error),
            Err(error) => Err(ports.undo(&port.id, error).await),
        }
    }

    async fn release_vif(&self, owner: &Owner, vif: &Vif) -> Result<(), DriverError> {
        self.0.activations.forget(&vif.id);
        match self.0.ports.standing(owner, vif).await? {
            Standing::Gone | Standing::Theirs => Ok(()),
            // It does not say itself of which trunk it is, as those do not that Kuryr made.
            Standing::Ours(None) => self.remove_port(&vif.id).await,
            Standing::Ours(Some(nesting)) => {
                let vlans = HashMap::from_iter(vlan_of(vif).map(|vlan| (vif.id.clone(), vlan)));
                let left = self.dismantle(&nesting, std::slice::from_ref(&vif.id), &vlans).await;
                left.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
            }
        }
    }

    async fn activate_vif(&self, vif: &Vif) -> Result<Activation, DriverError> {
        if !well_formed(vif.id.as_str()) {
            return Err(no_port(vif));
        }
        let (ask_again, mending) = match self.0.activations.progress(vif).await? {
            Progress::Active => return Ok(Activation::Active(Vif { active: true, ..vif.clone() })),
            Progress::Waiting { ask_again, mending } => (ask_again, mending),
            // Nobody looks whether a subport is bound.
            Progress::Failed => (FIRST_STEP, Mending::None),
        };
        if mending != Mending::None {
            // Said before the calls: what ends them in the middle leaves a port that is on no trunk.
            self.0.activations.mends(&vif.id, false);
            self.mend(vif, mending == Mending::Redo).await?;
            self.0.activations.mends(&vif.id, true);
        }
        Ok(Activation::NotYet { ask_again })
    }

    async fn vifs(&self, owner: Option<&Owner>) -> Result<Vec<Marked<Vif>>, DriverError> {
        let Inner { ports, trunks, .. } = &*self.0;
        let mut marked = ports.marked(owner).await?;
        marked.retain(|(mark, _)| trunk_of(mark).is_some());
        let subnets = ports.subnets(&marked).await?;
        let vlans = trunks.subports(&trunks_of(&marked)).await?;
        let halves = marked.iter().filter(|(_, port)| !vlans.contains_key(&port.id));
        let meant = halves.filter_map(|(mark, _)| {
            let (trunk, vlan) = trunk_of(mark)?;
            Some((trunk.to_owned(), vlan?))
        });
        trunks.reserve(meant, owner.is_none());
        let vif = |(mark, port): (Mark, Port)| {
            let meant = trunk_of(&mark).and_then(|(_, vlan)| vlan);
            // One that is on no trunk yet is to be added with the VLAN that was meant for it.
            let vlan = vlans.get(&port.id).copied().or(meant).unwrap_or_default();
            let thing = translate::listed(&port, &subnets, Kind::Vlan(vlan));
            Marked { owner: mark.owner().cloned(), thing }
        };
        Ok(marked.into_iter().map(vif).collect())
    }
}

/// The trunk in a mark, with the VLAN that was meant for the port.
pub(crate) fn trunk_of(mark: &Mark) -> Option<(&str, Option<u16>)> {
    match &mark.nesting.as_ref()?.parent {
        Parent::Trunk { id, vlan } => Some((id, *vlan)),
        Parent::Port(_) => None,
    }
}

/// The trunks in the marks, each once.
pub(crate) fn trunks_of(marked: &[(Mark, Port)]) -> Vec<String> {
    let trunks: BTreeSet<&str> = marked.iter().filter_map(|(mark, _)| Some(trunk_of(mark)?.0)).collect();
    trunks.into_iter().map(str::to_owned).collect()
}

/// The VIF cannot be what it is any more: whoever it was meant for needs another one.
fn overtaken(vif: &Vif, trunk: &str, vlan: u16) -> DriverError {
    let detail =
        format!("port {} is no subport, and another one has its VLAN {vlan} on the trunk {trunk}", vif.id);
    DriverError::new(Reason::NotFound, MEND).detail(detail)
}

pub(crate) fn vlan_of(vif: &Vif) -> Option<u16> {
    match &vif.class {
        VifClass::VlanNested { vlan_id, .. } => Some(*vlan_id),
        _ => None,
    }
}
