//! To which project a pod belongs.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;

use crate::error::DriverError;
use crate::id::ProjectId;
use crate::namespace_observer::NamespaceObserver;

/// Says to which project of the other world a pod belongs.
///
/// The same pod gets the same answer for as long as it lives.
/// It changes nothing: a dry run asks it as well.
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
    /// The project of `pod`.
    async fn project(&self, pod: &Pod) -> Result<ProjectId, DriverError>;

    /// Who must learn of all namespaces before this driver is asked anything; nobody, unless it says otherwise.
    fn namespaces(&self) -> Option<Arc<dyn NamespaceObserver>> {
        None
    }
}
