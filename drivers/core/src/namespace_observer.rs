//! Who learns of namespaces.

use k8s_openapi::api::core::v1::Namespace;

use crate::id::Uid;

/// Learns of all namespaces, for a driver that answers by what they say and not by a question to the API server.
///
/// A handler that uses such a driver feeds it by the one watch of namespaces, and it knows all of them before the driver is
/// asked for the first time. A method runs in the watch itself: it must be short and must not block.
pub trait NamespaceObserver: Send + Sync {
    /// The namespace exists, and is as it is here.
    fn present(&self, namespace: &Namespace);

    /// The namespace of that name and UID is gone. By now there may be another one of that name.
    fn gone(&self, name: &str, uid: &Uid);
}
