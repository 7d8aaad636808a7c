//! Observers of namespaces.

use k8s_openapi::api::core::v1::Namespace;

use crate::id::Uid;

/// Observes all namespaces, for a driver that needs their properties without a call to the API server.
///
/// The handler that uses the driver feeds it from its watch of namespaces, with all existing ones before the first call of the
/// driver. A method runs within the watch and must not block.
pub trait NamespaceObserver: Send + Sync {
    /// Records a namespace that exists, in its current state.
    fn present(&self, namespace: &Namespace);

    /// Records that the namespace with that name and UID is gone. Another one with the name may exist.
    fn gone(&self, name: &str, uid: &Uid);
}
