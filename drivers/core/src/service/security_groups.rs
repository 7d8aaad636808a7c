//! The security groups of a service's load balancer.

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Service;

use crate::error::DriverError;
use crate::id::{ProjectId, SecurityGroupId};

/// Returns the security groups of the address of a service's load balancer. An empty answer means the default of the external
/// system. The order has no meaning; the handler sorts.
/// It changes nothing: a dry run calls it too.
///
/// ```
/// use async_trait::async_trait;
/// use k8s_openapi::api::core::v1::Service;
/// use staffetta_driver::{DriverError, ProjectId, SecurityGroupId, ServiceSecurityGroupsDriver};
///
/// /// The same groups for all.
/// struct Fixed(Vec<SecurityGroupId>);
///
/// #[async_trait]
/// impl ServiceSecurityGroupsDriver for Fixed {
///     async fn security_groups(
///         &self,
///         _: &Service,
///         _: &ProjectId,
///     ) -> Result<Vec<SecurityGroupId>, DriverError> {
///         Ok(self.0.clone())
///     }
/// }
/// ```
#[async_trait]
pub trait ServiceSecurityGroupsDriver: Send + Sync {
    /// The security groups of `service`, which belongs to `project`.
    async fn security_groups(
        &self,
        service: &Service,
        project: &ProjectId,
    ) -> Result<Vec<SecurityGroupId>, DriverError>;
}
