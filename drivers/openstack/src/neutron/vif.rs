//! The driver `neutron-vif`: each pod has a port that Neutron binds on the pod's node. The VIF pool `neutron` keeps such ports ready for
//! new pods.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join_all;
use serde_json::json;
use staffetta_driver::{
    Activation, BulkVifDriver, BulkVifRequest, BulkVifResult, DriverError, Owned, Owner, PodVifDriver,
    PooledVifList, Reason, SecurityGroupId, Subnet, Vif, VifId, VifRequest,
};

use super::activation::{ActivationOutcome, Activations, BOUND_FIELDS, MIN_INTERVAL};
use super::bulk::{all_failed, create_batch};
use super::ownership::{PortOwnership, missing};
use super::ports::{MarkedPort, MarkedPorts};
use super::translate::{self, BindingStatus, PortAttachment};
use super::wire::{KURYR_OWNER, PortBody, VIF_FIELDS};
use crate::error::{DriverResult, StepName};
use crate::poll::{Coalescer, PollState};

const BIND: StepName = "bind a port on the node";

/// The driver `neutron-vif` of pod VIFs, whose ports Neutron binds on the pod's node. It also creates ports in bulk for the VIF pool
/// `neutron`. A port becomes ACTIVE when its node binds it for a pod.
#[derive(Clone, Debug)]
pub struct NeutronVifDriver {
    ports: Arc<MarkedPorts>,
    activations: Arc<Activations>,
    /// The coalescer of second reads, of ports that were still unbound in the response to their creation: simultaneous reads share
    /// requests.
    reads: Arc<Coalescer<VifId, DriverResult<Option<PortBody>>>>,
}

impl NeutronVifDriver {
    /// Creates the driver. `ports` is the client of the cluster's ports, which the VIF drivers share.
    pub fn new(ports: Arc<MarkedPorts>) -> Self {
        let activations = Activations::new(ports.neutron.clone(), BOUND_FIELDS);
        Self { ports, activations: Arc::new(activations), reads: Arc::default() }
    }

    /// Returns the kind of attachment that the ports of this driver have: Neutron binds them.
    fn attachment(&self) -> PortAttachment<'_> {
        PortAttachment::Bound { ovs_bridge: &self.ports.options.ovs_bridge }
    }

    /// Returns the VIF of a new port. If Neutron did not bind the port, or its binding is not visible or not supported, deletes it and
    /// returns an error.
    async fn bound_vif(&self, port: PortBody, subnets: &[Subnet]) -> DriverResult<Vif> {
        let id = port.id.clone();
        let bound = self.bound(port).await;
        match bound.and_then(|port| translate::vif_in(&port, subnets, self.attachment())) {
            Ok(vif) => Ok(vif),
            Err(error) => Err(self.ports.delete_unusable(&id, error).await),
        }
    }

    /// Creates `count` pooled ports by one call. Ports that Neutron does not bind are deleted, and the result then contains an error.
    async fn create_pooled(&self, request: &BulkVifRequest, count: usize) -> BulkVifResult {
        let batch = self.ports.batches.begin();
        let host = Some(request.key.host.as_str());
        let (created, failure) = self.ports.create_pooled(request, &batch, count, None, host).await;
        let mut result = BulkVifResult { vifs: Vec::new(), failure };
        for vif in join_all(created.into_iter().map(|port| self.bound_vif(port, &request.subnets))).await {
            match vif {
                Ok(vif) => result.vifs.push(vif),
                Err(error) => result.failure = result.failure.or(Some(error)),
            }
        }
        result
    }

    /// Returns a new port with its binding. The port is read again if it was still unbound in the response to its creation. If Neutron has
    /// not bound it by then, or could not bind it, returns an error. A binding that Neutron does not show is no error.
    async fn bound(&self, mut port: PortBody) -> DriverResult<PortBody> {
        if BindingStatus::of(&port) == BindingStatus::Unbound {
            let read = self.reads.call(port.id.clone(), |ids| self.read(ids)).await?;
            let read = read.ok_or_else(|| not_bound(&port, "it was deleted meanwhile"))?;
            port = PortBody { request_id: port.request_id, ..read };
        }
        match BindingStatus::of(&port) {
            BindingStatus::Bound | BindingStatus::Hidden => Ok(port),
            BindingStatus::Unbound => Err(not_bound(&port, "Neutron left it unbound")),
            BindingStatus::Failed => {
                let failure =
                    "the binding failed; is a network agent alive there, and does it serve the network?";
                Err(not_bound(&port, failure))
            }
        }
    }

    /// Reads the ports with these ids. The results are in the order of `ids`, with `None` for a port that does not exist.
    async fn read(&self, ids: Vec<VifId>) -> Vec<DriverResult<Option<PortBody>>> {
        let read = self.ports.neutron.ports_by_id("read the binding of ports", &ids, VIF_FIELDS).await;
        let port = |id: &VifId| -> DriverResult<Option<PortBody>> {
            let mut ports = read.as_ref().map_err(|error| DriverError::from(error.clone()))?.iter();
            Ok(ports.find(|port| port.id == *id).cloned())
        };
        ids.iter().map(port).collect()
    }

    /// Makes Neutron repeat the failed binding of a port, by setting the host of the port again. If the binding fails again, returns an
    /// error. A port that does not exist is no error.
    async fn bind_again(&self, id: &VifId) -> DriverResult<()> {
        let neutron = &self.ports.neutron;
        let Some(port) = neutron.port("read the host of a port", id).await? else { return Ok(()) };
        let change = json!({ "binding:host_id": port.host });
        let port = neutron.update_port(BIND, id, &change, None).await?;
        match BindingStatus::of(&port) {
            BindingStatus::Failed => Err(not_bound(&port, "the binding failed again")),
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl PodVifDriver for NeutronVifDriver {
    async fn request_vif(&self, request: &VifRequest) -> DriverResult<Vif> {
        let port = self.ports.create(self.ports.for_pod(request, None, Some(&request.node_name))).await?;
        let vif = self.bound_vif(port, &request.subnets).await?;
        self.activations.start(&vif.id);
        Ok(vif)
    }

    async fn release_vif(&self, owner: &Owner, vif: &Vif) -> DriverResult<()> {
        self.activations.forget(&vif.id);
        if let PortOwnership::Owned(_) = self.ports.ownership(owner, vif).await? {
            self.ports.delete(&vif.id).await?;
        }
        Ok(())
    }

    async fn activate_vif(&self, owner: &Owner, vif: &Vif) -> DriverResult<Activation> {
        self.ports.check_owner(owner, vif).await?;
        let poll_after = match self.activations.state(&vif.id).await? {
            PollState::Pending { poll_after, .. } => poll_after,
            PollState::Final(ActivationOutcome::Active) => {
                return Ok(Activation::Active(Vif { active: true, ..vif.clone() }));
            }
            PollState::Final(ActivationOutcome::Missing) => return Err(missing(vif)),
            PollState::Final(ActivationOutcome::BindingFailed) => {
                self.bind_again(&vif.id).await?;
                MIN_INTERVAL
            }
        };
        Ok(Activation::NotYet { poll_after })
    }

    async fn vifs(&self, owner: Option<&Owner>) -> DriverResult<Vec<Owned<Vif>>> {
        let mut marked = self.ports.marked(owner).await?;
        marked.retain(|(mark, _)| mark.nesting.is_none());
        self.ports.vifs(&marked, |_| self.attachment()).await
    }

    async fn unmarked_vifs(&self) -> DriverResult<Vec<Owned<Vif>>> {
        let ports = self.ports.kuryr_ports(KURYR_OWNER).await?;
        self.ports.vifs(&ports, |_| self.attachment()).await
    }

    fn vif_returned(&self, vif: &VifId) {
        self.activations.forget(vif);
    }
}

#[async_trait]
impl BulkVifDriver for NeutronVifDriver {
    fn host(&self, request: &VifRequest) -> DriverResult<String> {
        Ok(request.node_name.clone())
    }

    async fn create_vifs(&self, request: &BulkVifRequest) -> BulkVifResult {
        create_batch(request.count, |count| self.create_pooled(request, count)).await
    }

    async fn set_security_groups(&self, vif: &Vif, security_groups: &[SecurityGroupId]) -> DriverResult<()> {
        self.ports.set_groups(vif, security_groups).await
    }

    async fn delete_vifs(&self, vifs: &[Vif]) -> Vec<(VifId, DriverError)> {
        match self.ports.pooled(vifs).await {
            // A deletion that arrives late must not hit a port that the next leader has given to a pod: it changes when it is wired.
            Ok(pooled) => {
                let ports = pooled.into_iter().map(|(_, port)| (port.id, port.revision_number));
                self.ports.delete_all(ports).await
            }
            Err(error) => all_failed(vifs, &error),
        }
    }

    async fn list_vifs(&self) -> DriverResult<PooledVifList> {
        let cutoff = self.ports.batches.cutoff();
        let mut marked = self.ports.marked(None).await?;
        marked.retain(|(mark, _)| mark.nesting.is_none());
        // Without the binding, all ports would count as incomplete.
        let is_hidden = |(mark, port): &&MarkedPort| {
            mark.owner().is_none() && BindingStatus::of(port) == BindingStatus::Hidden
        };
        if let Some((_, port)) = marked.iter().find(is_hidden) {
            return Err(translate::hidden_binding("list the pooled ports", port));
        }
        let is_complete = |port: &PortBody| BindingStatus::of(port) == BindingStatus::Bound;
        self.ports.pooled_vifs(marked, cutoff, |_| self.attachment(), is_complete).await
    }

    fn is_active_unbound(&self, _: &Vif) -> bool {
        false
    }
}

/// Returns the error of a port that Neutron has not bound on its node.
fn not_bound(port: &PortBody, reason: &str) -> DriverError {
    let detail = format!("port {} on the host `{}`: {reason}", port.id, port.host);
    let error = DriverError::new(Reason::Unavailable, BIND).detail(detail);
    port.request_id.iter().fold(error, DriverError::request_id)
}
