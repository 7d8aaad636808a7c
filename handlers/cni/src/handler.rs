//! The handler `cni`: keeps the table of the node's pods up to date.

use std::convert::Infallible;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use staffetta_handler::{Action, Registration, ResourceEventHandler, Tombstone};

use crate::daemon::CniDaemon;

/// The handler that puts each pod of the node into the table of the daemon. It writes nothing to the API server.
struct CniHandler(Arc<CniDaemon>);

/// Registers the handler for the pods of the node `node_name`; the API server sends no others.
pub fn registration(daemon: &Arc<CniDaemon>, node_name: &str) -> Registration {
    let handler = CniHandler(Arc::clone(daemon));
    Registration::new(handler)
        .on::<Pod>()
        .select::<Pod>(|kind| kind.field_selector = Some(format!("spec.nodeName={node_name}")))
        .erase()
}

impl ResourceEventHandler<Pod> for CniHandler {
    type Error = Infallible;

    async fn on_present(&self, pod: &Arc<Pod>) -> Result<Action, Infallible> {
        self.0.pods.put(pod);
        Ok(Action::done())
    }

    /// Keeps a pod in the table of the daemon although its deletion was requested: its containers still run, and keep their VIFs until they
    /// end.
    async fn on_finalize(&self, pod: &Arc<Pod>) -> Result<Action, Infallible> {
        self.0.pods.put(pod);
        Ok(Action::done())
    }

    async fn on_deleted(&self, pod: &Tombstone<Pod>) -> Result<Action, Infallible> {
        self.0.pods.remove(pod.object_ref().uid);
        Ok(Action::done())
    }
}
