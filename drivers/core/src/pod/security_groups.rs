//! The security groups of a pod.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;

use crate::error::DriverError;
use crate::id::{ProjectId, SecurityGroupId};
use crate::namespace::NamespaceObserver;
use crate::network_policy::NetworkPolicyObserver;

/// Returns the security groups of a pod for the creation of its VIF. An empty answer means the default of the external system.
/// It changes nothing: a dry run calls it too.
///
/// ```
/// use async_trait::async_trait;
/// use k8s_openapi::api::core::v1::Pod;
/// use staffetta_driver::{DriverError, PodSecurityGroupsDriver, ProjectId, SecurityGroupId};
///
/// /// The same groups for all.
/// struct Fixed(Vec<SecurityGroupId>);
///
/// #[async_trait]
/// impl PodSecurityGroupsDriver for Fixed {
///     async fn security_groups(&self, _: &Pod, _: &ProjectId) -> Result<Vec<SecurityGroupId>, DriverError> {
///         Ok(self.0.clone())
///     }
/// }
/// ```
#[async_trait]
pub trait PodSecurityGroupsDriver: Send + Sync {
    /// The security groups of `pod`, which belongs to `project`.
    async fn security_groups(
        &self,
        pod: &Pod,
        project: &ProjectId,
    ) -> Result<Vec<SecurityGroupId>, DriverError>;

    /// The observer that must receive all namespaces before the first call of this driver; `None` by default.
    fn namespaces(&self) -> Option<Arc<dyn NamespaceObserver>> {
        None
    }

    /// The observer that must receive all network policies before the first call of this driver; `None` by default.
    fn policies(&self) -> Option<Arc<dyn NetworkPolicyObserver>> {
        None
    }
}
