//! Reconciles nodes and pods: reads and writes, with the pure functions of `node` and `pod` for all decisions.

mod events;
mod fenced;
mod node;
mod pod;
mod removal;
#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, Preconditions};
use staffetta_handler::Registration;

use crate::reader::MachineReaders;
use crate::shared::{Dependencies, Shared};
use crate::triggers::{NodeDue, PodDue};

/// The handler of virtual nodes. It keeps the nodes of a [`NodeSource`](crate::NodeSource) in Kubernetes, and runs
/// their pods on the machines.
pub struct VirtualNodes(Arc<Shared>);

impl VirtualNodes {
    /// Creates the handler. It does nothing before its [`registration`](Self::registration) is started.
    pub fn new(dependencies: Dependencies) -> Self {
        Self(Arc::new(Shared::new(dependencies)))
    }

    /// Builds the registration of the handler: for events of pods and nodes, and for triggers from the tasks that read
    /// the machines.
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
            .superseded_by_key()
            .source(MachineReaders(shared))
    }

    /// Returns the dependencies and state that the handler shares with its machine readers.
    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.0)
    }
}

/// Returns delete parameters with `uid` as a precondition, so that a new object of the same name is not deleted.
fn only(uid: Option<&String>) -> DeleteParams {
    let preconditions = Preconditions { uid: uid.cloned(), resource_version: None };
    DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }
}

/// Converts the error of a delete request into success if the object does not exist (404) or has another UID (409).
fn gone(deleted: Result<(), kube::Error>) -> Result<(), kube::Error> {
    match deleted {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        other => other,
    }
}
