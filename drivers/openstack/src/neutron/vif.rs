//! The driver `neutron-vif`: each pod has a port that is bound on its node.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use staffetta_driver::{
    Activation, DriverError, Marked, Owner, PodVifDriver, Reason, Vif, VifId, VifRequest,
};

use super::activation::{Activations, Progress};
use super::board::FIRST_STEP;
use super::mark::Mark;
use super::ports::{Ports, Standing};
use super::together::Together;
use super::translate::{self, Binding, Kind};
use super::wire::{Port, PortChange, VIF_FIELDS};
use crate::cloud::well_formed;

const BIND: &str = "bind a port on the node";

/// The driver `neutron-vif`.
#[derive(Clone, Debug)]
pub struct NeutronVifDriver(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    ports: Ports,
    activations: Activations,
    /// Ports whose binding the answer to their creation did not show yet.
    again: Together<VifId, Result<Option<Port>, DriverError>>,
}

impl NeutronVifDriver {
    pub(crate) fn over(ports: Ports) -> Self {
        let activations = Activations::of_bound(ports.neutron.clone());
        Self(Arc::new(Inner { ports, activations, again: Together::default() }))
    }

    pub(crate) fn ports(&self) -> &Ports {
        &self.0.ports
    }

    /// What was seen of a port says nothing of it any more.
    pub(crate) fn unsee(&self, id: &VifId) {
        self.0.activations.forget(id);
    }

    pub(crate) fn kind(&self) -> Kind<'_> {
        Kind::Bound { ovs_bridge: &self.0.ports.options.ovs_bridge }
    }

    /// The port, bound. One that cannot be bound is an error, and is removed.
    pub(crate) async fn bound(&self, port: Port) -> Result<Port, DriverError> {
        let id = port.id.clone();
        let port = match Binding::of(&port) {
            Binding::Unbound => match self.0.again.call(id.clone(), |ids| self.read(ids)).await {
                Ok(Some(read)) => Port { request_id: port.request_id, ..read },
                Ok(None) => return Err(unbound(&port, "it was removed meanwhile")),
                Err(error) => return Err(self.0.ports.undo(&id, error).await),
            },
            _ => port,
        };
        let failure = match Binding::of(&port) {
            Binding::Bound | Binding::Hidden => return Ok(port),
            Binding::Unbound => "Neutron left it unbound",
            Binding::Failed => {
                "the binding failed; is an agent of the network alive there, and does it know the network?"
            }
        };
        let error = unbound(&port, failure);
        Err(self.0.ports.undo(&id, error).await)
    }

    /// The ports of these ids, in their order.
    async fn read(&self, ids: Vec<VifId>) -> Vec<Result<Option<Port>, DriverError>> {
        match self.0.ports.neutron.ports_by_id("read the binding of ports", &ids, &VIF_FIELDS).await {
            Ok(ports) => {
                let mut ports: HashMap<VifId, Port> =
                    ports.into_iter().map(|port| (port.id.clone(), port)).collect();
                ids.iter().map(|id| Ok(ports.remove(id))).collect()
            }
            Err(error) => {
                let error = DriverError::from(error);
                ids.iter().map(|_| Err(error.clone())).collect()
            }
        }
    }

    /// Neutron tries a binding that failed again when it is told the host again. A port that an annotation names and that is not
    /// this cluster's stays as it is.
    async fn bind_again(&self, id: &VifId) -> Result<(), DriverError> {
        let ports = &self.0.ports;
        let Some(port) = ports.neutron.port("read the host of a port", id).await? else { return Ok(()) };
        if port.mark().is_none_or(|mark| mark.cluster != ports.cluster) {
            return Err(unbound(
                &port,
                "the binding failed, and the port is not this cluster's to bind again",
            ));
        }
        let change = PortChange { host: Some(port.host.clone()), ..PortChange::default() };
        let port = ports.neutron.change_port(BIND, id, &change, None).await?;
        match Binding::of(&port) {
            Binding::Failed => Err(unbound(&port, "the binding failed again")),
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl PodVifDriver for NeutronVifDriver {
    async fn request_vif(&self, request: &VifRequest) -> Result<Vif, DriverError> {
        let ports = &self.0.ports;
        let port = ports.make(ports.for_pod(request, None, Some(&request.node_name))).await?;
        let port = self.bound(port).await?;
        match translate::vif_in(&port, &request.subnets, self.kind()) {
            Ok(vif) => {
                self.0.activations.made(&vif.id);
                Ok(vif)
            }
            Err(error) => Err(ports.undo(&port.id, error).await),
        }
    }

    async fn release_vif(&self, owner: &Owner, vif: &Vif) -> Result<(), DriverError> {
        self.0.activations.forget(&vif.id);
        match self.0.ports.standing(owner, vif).await? {
            Standing::Ours(_) => Ok(self.0.ports.remove(&vif.id).await?),
            Standing::Gone | Standing::Theirs => Ok(()),
        }
    }

    async fn activate_vif(&self, vif: &Vif) -> Result<Activation, DriverError> {
        if !well_formed(vif.id.as_str()) {
            return Err(no_port(vif));
        }
        match self.0.activations.progress(vif).await? {
            Progress::Active => Ok(Activation::Active(Vif { active: true, ..vif.clone() })),
            Progress::Waiting { ask_again, .. } => Ok(Activation::NotYet { ask_again }),
            Progress::Failed => {
                self.bind_again(&vif.id).await?;
                Ok(Activation::NotYet { ask_again: FIRST_STEP })
            }
        }
    }

    async fn vifs(&self, owner: Option<&Owner>) -> Result<Vec<Marked<Vif>>, DriverError> {
        let ports = &self.0.ports;
        let mut marked = ports.marked(owner).await?;
        marked.retain(|(mark, _)| mark.nesting.is_none());
        let subnets = ports.subnets(&marked).await?;
        let vif = |(mark, port): (Mark, Port)| Marked {
            owner: mark.owner().cloned(),
            thing: translate::listed(&port, &subnets, self.kind()),
        };
        Ok(marked.into_iter().map(vif).collect())
    }
}

/// What an annotation calls a port is none.
pub(crate) fn no_port(vif: &Vif) -> DriverError {
    let detail = format!("`{}` is no id of a port", vif.id.as_str().escape_debug());
    DriverError::new(Reason::NotFound, "read the status of a port").detail(detail)
}

fn unbound(port: &Port, why: &str) -> DriverError {
    let detail = format!("port {} on the host `{}`: {why}", port.id, port.host);
    let error = DriverError::new(Reason::Unavailable, BIND).detail(detail);
    port.request_id.iter().fold(error, DriverError::request_id)
}
