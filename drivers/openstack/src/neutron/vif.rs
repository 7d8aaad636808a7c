//! The driver `neutron-vif`: each pod has a port that Neutron binds on its node. The pool `neutron` keeps such ports ready.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join_all;
use serde_json::json;
use staffetta_driver::{
    Activation, BulkVifDriver, BulkVifRequest, BulkVifResult, ClusterId, DriverError, Owned, Owner,
    PodVifDriver, PooledVifList, Reason, SecurityGroupId, Subnet, Vif, VifId, VifRequest,
};

use super::activation::{ActivationStatus, Activations, BOUND_FIELDS, MIN_INTERVAL};
use super::bulk::{PooledPort, all_failed, create_batch};
use super::options::PortOptions;
use super::ports::{MarkedPort, MarkedPorts, PortOwnership, check_id};
use super::translate::{self, BindingStatus, PortAttachment};
use super::wire::{PortBody, VIF_FIELDS};
use crate::cloud::Cloud;
use crate::error::{DriverResult, Step};
use crate::mark::PortMark;
use crate::poll::Coalescer;
use crate::subnets::{SubnetMap, Subnets};

const BIND: Step = "bind a port on the node";

/// The driver `neutron-vif`, and bulk creation of its ports. A port becomes ACTIVE when its node binds it for a pod.
#[derive(Clone, Debug)]
pub struct NeutronVifDriver {
    ports: Arc<MarkedPorts>,
    activations: Arc<Activations>,
    /// Reads of ports whose binding the response to their creation did not contain.
    reads: Arc<Coalescer<VifId, DriverResult<Option<PortBody>>>>,
}

impl NeutronVifDriver {
    /// Creates ports in `cloud` with the mark of `cluster`.
    pub fn new(cloud: &Cloud, subnets: Arc<Subnets>, cluster: ClusterId, options: PortOptions) -> Self {
        let ports = MarkedPorts::new(cloud, subnets, cluster, options);
        let activations = Activations::new(ports.neutron.clone(), BOUND_FIELDS);
        Self { ports: Arc::new(ports), activations: Arc::new(activations), reads: Arc::default() }
    }

    fn attachment(&self) -> PortAttachment<'_> {
        PortAttachment::Bound { ovs_bridge: &self.ports.options.ovs_bridge }
    }

    /// Returns the VIF of a new port. A port that no node can bind is deleted, and an error.
    async fn bound_vif(&self, port: PortBody, subnets: &[Subnet]) -> DriverResult<Vif> {
        let port = self.bound(port).await?;
        match translate::vif_in(&port, subnets, self.attachment()) {
            Ok(vif) => Ok(vif),
            Err(error) => Err(self.ports.undo(&port.id, error).await),
        }
    }

    /// Creates `count` pooled ports by one call.
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

    /// Returns the port with its binding. A port that is not bound is deleted, and an error.
    async fn bound(&self, port: PortBody) -> DriverResult<PortBody> {
        let id = port.id.clone();
        let port = match BindingStatus::of(&port) {
            BindingStatus::Unbound => match self.reads.call(id.clone(), |ids| self.read(ids)).await {
                Ok(Some(read)) => PortBody { request_id: port.request_id, ..read },
                Ok(None) => return Err(not_bound(&port, "it was deleted meanwhile")),
                Err(error) => return Err(self.ports.undo(&id, error).await),
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
        Err(self.ports.undo(&id, error).await)
    }

    /// Reads the ports with these ids, in their order.
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

    /// Makes Neutron repeat a failed binding by setting the host again. A port without the mark of this cluster is not changed.
    async fn bind_again(&self, id: &VifId) -> DriverResult<()> {
        let ports = &self.ports;
        let Some(port) = ports.neutron.port("read the host of a port", id).await? else { return Ok(()) };
        if port.mark_of(&ports.cluster).is_none() {
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
            PortOwnership::Missing | PortOwnership::Foreign => Ok(()),
        }
    }

    async fn activate_vif(&self, vif: &Vif) -> DriverResult<Activation> {
        check_id(vif)?;
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
        let mut marked = self.ports.marked(None).await?;
        marked.retain(|(mark, _)| mark.nesting.is_none() && mark.owner().is_none());
        let is_hidden = |(_, port): &&MarkedPort| BindingStatus::of(port) == BindingStatus::Hidden;
        if let Some((_, port)) = marked.iter().find(is_hidden) {
            return Err(hidden_binding(port));
        }
        let pooled = |_: &PortMark, port: &PortBody, subnets: &SubnetMap| {
            let vif = translate::listed(port, subnets, self.attachment());
            let complete = BindingStatus::of(port) == BindingStatus::Bound;
            Some(PooledPort { host: port.host.clone(), vif, complete })
        };
        self.ports.pooled_vifs(marked, cutoff, pooled).await
    }

    fn is_active_unbound(&self, _: &Vif) -> bool {
        false
    }
}

/// The error of a list that does not show whether ports are bound: all of them would look incomplete.
fn hidden_binding(port: &PortBody) -> DriverError {
    let detail = format!(
        "Neutron does not show the binding of port {}; the user needs a role that may see it, such as `service`",
        port.id
    );
    DriverError::new(Reason::Refused, "list the pooled ports").detail(detail)
}

fn not_bound(port: &PortBody, reason: &str) -> DriverError {
    let detail = format!("port {} on the host `{}`: {reason}", port.id, port.host);
    let error = DriverError::new(Reason::Unavailable, BIND).detail(detail);
    port.request_id.iter().fold(error, DriverError::request_id)
}
