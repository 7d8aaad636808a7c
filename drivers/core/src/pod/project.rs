//! The project of a pod.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;

use crate::error::DriverError;
use crate::id::ProjectId;
use crate::namespace::NamespaceObserver;

/// Chooses the project of a pod.
///
/// A pod gets the same result for as long as it lives. It changes nothing: a dry run calls it too.
///
/// ```
/// use async_trait::async_trait;
/// use k8s_openapi::api::core::v1::Pod;
/// use staffetta_driver::{DriverError, PodProjectDriver, ProjectId, Reason};
///
/// /// A project for each namespace, with the namespace's own name.
/// struct ByNamespace;
///
/// #[async_trait]
/// impl PodProjectDriver for ByNamespace {
///     async fn project(&self, pod: &Pod) -> Result<ProjectId, DriverError> {
///         let missing = || DriverError::new(Reason::NotFound, "read the pod's namespace");
///         pod.metadata.namespace.as_deref().map(ProjectId::from).ok_or_else(missing)
///     }
/// }
/// ```
#[async_trait]
pub trait PodProjectDriver: Send + Sync {
    /// Returns the project of `pod`.
    async fn project(&self, pod: &Pod) -> Result<ProjectId, DriverError>;

    /// The observer that must receive all namespaces before the first call of this driver; `None` by default.
    fn namespaces(&self) -> Option<Arc<dyn NamespaceObserver>> {
        None
    }
}
