//! The project of a namespace.

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Namespace;

use crate::error::DriverError;
use crate::id::ProjectId;

/// Chooses the project of the resources of a namespace as a whole, such as its network.
///
/// The same namespace gets the same answer for as long as it lives.
/// It changes nothing: a dry run calls it too.
///
/// ```
/// use async_trait::async_trait;
/// use k8s_openapi::api::core::v1::Namespace;
/// use staffetta_driver::{DriverError, NamespaceProjectDriver, ProjectId, Reason};
///
/// /// A project for each namespace, with the namespace's own name.
/// struct ByName;
///
/// #[async_trait]
/// impl NamespaceProjectDriver for ByName {
///     async fn project(&self, namespace: &Namespace) -> Result<ProjectId, DriverError> {
///         let missing = || DriverError::new(Reason::NotFound, "read the namespace's name");
///         namespace.metadata.name.as_deref().map(ProjectId::from).ok_or_else(missing)
///     }
/// }
/// ```
#[async_trait]
pub trait NamespaceProjectDriver: Send + Sync {
    /// The project of `namespace`.
    async fn project(&self, namespace: &Namespace) -> Result<ProjectId, DriverError>;
}
