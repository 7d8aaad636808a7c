//! The project of a service's load balancer.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Service;

use crate::error::DriverError;
use crate::id::ProjectId;
use crate::namespace::NamespaceObserver;

/// Chooses the project of the load balancer of a service.
///
/// The same service gets the same answer for as long as it lives: a load balancer cannot move.
/// It changes nothing: a dry run calls it too.
///
/// ```
/// use async_trait::async_trait;
/// use k8s_openapi::api::core::v1::Service;
/// use staffetta_driver::{DriverError, ProjectId, Reason, ServiceProjectDriver};
///
/// /// A project for each namespace, with the namespace's own name.
/// struct ByNamespace;
///
/// #[async_trait]
/// impl ServiceProjectDriver for ByNamespace {
///     async fn project(&self, service: &Service) -> Result<ProjectId, DriverError> {
///         let missing = || DriverError::new(Reason::NotFound, "read the service's namespace");
///         service.metadata.namespace.as_deref().map(ProjectId::from).ok_or_else(missing)
///     }
/// }
/// ```
#[async_trait]
pub trait ServiceProjectDriver: Send + Sync {
    /// The project of `service`.
    async fn project(&self, service: &Service) -> Result<ProjectId, DriverError>;

    /// The observer that must receive all namespaces before the first call of this driver; `None` by default.
    fn namespaces(&self) -> Option<Arc<dyn NamespaceObserver>> {
        None
    }
}
