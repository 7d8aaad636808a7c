//! Reconciles nodes and pods: the thin shell around the pure decisions of `node` and `pod`.

mod events;
mod node;
mod pod;
mod removal;
#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, Preconditions};
use staffetta_handler::{Registration, Superseded};

use crate::reader::MachineReaders;
use crate::shared::{Dependencies, Shared};
use crate::triggers::{NodeDue, PodDue};

/// Keeps the nodes of a [`NodeSource`](crate::NodeSource) and their pods.
pub struct VirtualNodes(Arc<Shared>);

impl VirtualNodes {
    /// Creates the handler. It does nothing before it is registered.
    pub fn new(dependencies: Dependencies) -> Self {
        Self(Arc::new(Shared::new(dependencies)))
    }

    /// Builds the registration: for pods and nodes, with the readers of the machines as its source.
    pub fn registration(self) -> Registration<Self> {
        let shared = Arc::clone(&self.0);
        Registration::new(self)
            .index::<Pod>(Arc::clone(&shared.cluster))
            .index::<Node>(Arc::clone(&shared.cluster))
            .on::<Pod>()
            .on::<Node>()
            .on_trigger::<PodDue>()
            .on_trigger::<NodeDue>()
            // Each attempt looks at the newest state of the node or pod: an event ends the wait of a trigger for it.
            .superseded(Superseded::BySameKey)
            .source(MachineReaders(shared))
    }

    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.0)
    }
}

fn node_of(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

/// Deletes this object and no other of its name.
fn only(uid: Option<&String>) -> DeleteParams {
    let preconditions = Preconditions { uid: uid.cloned(), resource_version: None };
    DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }
}

/// Treats a missing or replaced object as deleted.
fn gone(deleted: Result<(), kube::Error>) -> Result<(), kube::Error> {
    match deleted {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        other => other,
    }
}
