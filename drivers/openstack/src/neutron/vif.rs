//! The driver `neutron-vif`: each pod has a port that Neutron binds on the pod's node. The VIF pool `neutron` keeps such ports ready for
//! new pods.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join_all;
use serde_json::json;
use staffetta_driver::{
    Activation, BulkVifDriver, BulkVifRequest, BulkVifResult, DriverError, Owned, Owner, PodVifDriver,
    PooledVifList, Reason, SecurityGroupId, Subnet, Vif, VifId, VifRequest,
};

use super::activation::{ActivationStatus, Activations, BOUND_FIELDS, MIN_INTERVAL};
use super::bulk::{PooledPort, all_failed, create_batch};
use super::ownership::PortOwnership;
use super::ports::{MarkedPort, MarkedPorts};
use super::translate::{self, BindingStatus, PortAttachment};
use super::wire::{KURYR_OWNER, PortBody, VIF_FIELDS};
use crate::error::{DriverResult, StepName};
use crate::mark::PortMark;
use crate::poll::Coalescer;
use crate::subnets::SubnetMap;

const BIND: StepName = "bind a port on the node";

/// The driver `neutron-vif`, and bulk creation of its ports for the pool `neutron`. A port becomes ACTIVE when its node binds it for a pod.
#[derive(Clone, Debug)]
pub struct NeutronVifDriver {
    ports: Arc<MarkedPorts>,
    activations: Arc<Activations>,
    /// Lets simultaneous reads of ports that were still unbound in the response that created them share requests.
    reads: Arc<Coalescer<VifId, DriverResult<Option<PortBody>>>>,
}

impl NeutronVifDriver {
    /// Creates the driver, whose ports are among `ports`.
    pub fn new(ports: Arc<MarkedPorts>) -> Self {
        let activations = Activations::new(ports.neutron.clone(), BOUND_FIELDS);
        Self { ports, activations: Arc::new(activations), reads: Arc::default() }
    }

    /// Returns the kind of attachment that the ports of this driver have: Neutron binds them.
    fn attachment(&self) -> PortAttachment<'_> {
        PortAttachment::Bound { ovs_bridge: &self.ports.options.ovs_bridge }
    }

    /// Returns the VIF of a new port. If no node can bind the port, deletes it and returns an error.
    async fn bound_vif(&self, port: PortBody, subnets: &[Subnet]) -> DriverResult<Vif> {
        let port = self.bound(port).await?;
        match translate::vif_in(&port, subnets, self.attachment()) {
            Ok(vif) => Ok(vif),
            Err(error) => Err(self.ports.delete_unusable(&port.id, error).await),
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

    /// Returns a new port with its binding. The port is read again if it was still unbound in the response that created it. If Neutron has
    /// not bound the port then either, deletes it and returns an error.
    async fn bound(&self, port: PortBody) -> DriverResult<PortBody> {
        let id = port.id.clone();
        let port = match BindingStatus::of(&port) {
            BindingStatus::Unbound => match self.reads.call(id.clone(), |ids| self.read(ids)).await {
                Ok(Some(read)) => PortBody { request_id: port.request_id, ..read },
                Ok(None) => return Err(not_bound(&port, "it was deleted meanwhile")),
                Err(error) => return Err(self.ports.delete_unusable(&id, error).await),
            },
            _ => port,
        };
        let failure = match BindingStatus::of(&port) {
            BindingStatus::Bound | BindingStatus::Hidden => return Ok(port),
            BindingStatus::Unbound => "Neutron left it unbound",
            BindingStatus::Failed => {
                "the binding failed; is a network agent alive there, and does it serve the network?"
            }
        };
        let error = not_bound(&port, failure);
        Err(self.ports.delete_unusable(&id, error).await)
    }

    /// Reads the ports with these ids. The results are in the order of `ids`, with `None` for a port that does not exist.
    async fn read(&self, ids: Vec<VifId>) -> Vec<DriverResult<Option<PortBody>>> {
        match self.ports.neutron.ports_by_id("read the binding of ports", &ids, VIF_FIELDS).await {
            Ok(ports) => {
                let mut ports: HashMap<VifId, PortBody> =
                    ports.into_iter().map(|port| (port.id.clone(), port)).collect();
                ids.iter().map(|id| Ok(ports.remove(id))).collect()
            }
            Err(error) => {
                let error = DriverError::from(error);
                ids.iter().map(|_| Err(error.clone())).collect()
            }
        }
    }

    /// Makes Neutron repeat a failed binding, by setting the host of the port again. If the port does not have the ownership mark of this
    /// cluster, it is not changed, and an error is returned.
    async fn bind_again(&self, id: &VifId) -> DriverResult<()> {
        let ports = &self.ports;
        let Some(port) = ports.neutron.port("read the host of a port", id).await? else { return Ok(()) };
        if ports.mark_of(&port).is_none() {
            let reason = "the binding failed, and the port does not belong to this cluster";
            return Err(not_bound(&port, reason));
        }
        let change = json!({ "binding:host_id": port.host });
        let port = ports.neutron.update_port(BIND, id, &change, None).await?;
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
        match self.ports.ownership(owner, vif).await? {
            PortOwnership::Owned(_) => Ok(self.ports.delete(&vif.id).await?),
            PortOwnership::Missing | PortOwnership::Pooled | PortOwnership::Foreign => Ok(()),
        }
    }

    async fn activate_vif(&self, owner: &Owner, vif: &Vif) -> DriverResult<Activation> {
        self.ports.check_owner(owner, vif).await?;
        match self.activations.status(vif).await? {
            ActivationStatus::Active => Ok(Activation::Active(Vif { active: true, ..vif.clone() })),
            ActivationStatus::Down { poll_after, .. } => Ok(Activation::NotYet { poll_after }),
            ActivationStatus::Failed => {
                self.bind_again(&vif.id).await?;
                Ok(Activation::NotYet { poll_after: MIN_INTERVAL })
            }
        }
    }

    async fn vifs(&self, owner: Option<&Owner>) -> DriverResult<Vec<Owned<Vif>>> {
        let mut marked = self.ports.marked(owner).await?;
        marked.retain(|(mark, _)| mark.nesting.is_none());
        self.ports.vifs(marked, |_, port, subnets| translate::listed(port, subnets, self.attachment())).await
    }

    async fn unmarked_vifs(&self) -> DriverResult<Vec<Owned<Vif>>> {
        let ports = self.ports.kuryr_ports(KURYR_OWNER).await?;
        self.ports.vifs(ports, |_, port, subnets| translate::listed(port, subnets, self.attachment())).await
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
            Ok(pooled) => {
                let left = self.ports.delete_all(pooled.into_iter().map(|(id, _)| id)).await;
                left.into_iter().map(|(id, error)| (id, error.into())).collect()
            }
            Err(error) => all_failed(vifs, &error),
        }
    }

    async fn list_vifs(&self) -> DriverResult<PooledVifList> {
        let cutoff = self.ports.batches.cutoff();
        let marked = self.ports.marked(None).await?.into_iter().filter(|(mark, _)| mark.nesting.is_none());
        let (pooled, owned): (Vec<_>, Vec<_>) = marked.partition(|(mark, _)| mark.owner().is_none());
        let is_hidden = |(_, port): &&MarkedPort| BindingStatus::of(port) == BindingStatus::Hidden;
        if let Some((_, port)) = pooled.iter().find(is_hidden) {
            return Err(hidden_binding(port));
        }
        let listed =
            |port: &PortBody, subnets: &SubnetMap| translate::listed(port, subnets, self.attachment());
        let convert = |_: &PortMark, port: &PortBody, subnets: &SubnetMap| {
            let vif = listed(port, subnets);
            let complete = BindingStatus::of(port) == BindingStatus::Bound;
            Some(PooledPort { host: port.host.clone(), vif, complete })
        };
        let owned = self.ports.vifs(owned, |_, port, subnets| listed(port, subnets)).await?;
        Ok(PooledVifList { owned, ..self.ports.pooled_vifs(pooled, cutoff, convert).await? })
    }

    fn is_active_unbound(&self, _: &Vif) -> bool {
        false
    }
}

/// Returns the error of a list that does not show if ports are bound. Without this error, all ports would count as incomplete.
fn hidden_binding(port: &PortBody) -> DriverError {
    let detail = format!(
        "Neutron does not show the binding of port {}; the user needs a role that may see it, such as `service`",
        port.id
    );
    DriverError::new(Reason::Refused, "list the pooled ports").detail(detail)
}

/// Returns the error of a port that Neutron has not bound on its node.
fn not_bound(port: &PortBody, reason: &str) -> DriverError {
    let detail = format!("port {} on the host `{}`: {reason}", port.id, port.host);
    let error = DriverError::new(Reason::Unavailable, BIND).detail(detail);
    port.request_id.iter().fold(error, DriverError::request_id)
}
