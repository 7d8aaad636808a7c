//! Which security groups guard a pod.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;

use crate::error::DriverError;
use crate::id::{ProjectId, SecurityGroupId};
use crate::namespace_observer::NamespaceObserver;
use crate::network_policy_observer::NetworkPolicyObserver;

/// Says which security groups guard a pod when its VIF is made. An empty answer means the other side's own default.
/// It changes nothing: a dry run asks it as well.
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

    /// Who must learn of all namespaces before this driver is asked anything; nobody, unless it says otherwise.
    fn namespaces(&self) -> Option<Arc<dyn NamespaceObserver>> {
        None
    }

    /// Who must learn of all network policies before this driver is asked anything; nobody, unless it says otherwise.
    fn policies(&self) -> Option<Arc<dyn NetworkPolicyObserver>> {
        None
    }
}
