//! Drivers that choose the project, the subnets and the security groups of a service's load balancer.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Service;

use crate::error::DriverError;
use crate::id::{ProjectId, SecurityGroupId, SubnetId};
use crate::namespace::NamespaceObserver;

/// Chooses the cloud project of the load balancer of a service.
///
/// The result for a service never changes while the service exists, because a load balancer cannot move to another project. The
/// call changes nothing in the cloud: a dry run calls it too.
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
    /// Returns the project of `service`.
    async fn project(&self, service: &Service) -> Result<ProjectId, DriverError>;

    /// Returns the observer that must receive all namespaces before the first call of this driver; `None`, the default, if the
    /// driver needs none.
    fn namespaces(&self) -> Option<Arc<dyn NamespaceObserver>> {
        None
    }
}

/// Chooses the subnets that contain the cluster IP of a service.
///
/// A load balancer has one address, so the handler uses the first subnet only. An empty result is a configuration error, which
/// the handler reports. The result for a service never changes while the service keeps its cluster IP. The call changes nothing
/// in the cloud: a dry run calls it too.
///
/// ```
/// use async_trait::async_trait;
/// use k8s_openapi::api::core::v1::Service;
/// use staffetta_driver::{DriverError, ProjectId, ServiceSubnetsDriver, SubnetId};
///
/// /// One subnet for all.
/// struct Flat(SubnetId);
///
/// #[async_trait]
/// impl ServiceSubnetsDriver for Flat {
///     async fn subnets(&self, _: &Service, _: &ProjectId) -> Result<Vec<SubnetId>, DriverError> {
///         Ok(vec![self.0.clone()])
///     }
/// }
/// ```
#[async_trait]
pub trait ServiceSubnetsDriver: Send + Sync {
    /// Returns the subnets of `service`, which belongs to `project`.
    async fn subnets(&self, service: &Service, project: &ProjectId) -> Result<Vec<SubnetId>, DriverError>;
}

/// Chooses the security groups of a load balancer's port. An empty result means the default security groups of the external
/// system. The call changes nothing in the cloud: a dry run calls it too.
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
    /// Returns the security groups of `service`, which belongs to `project`, in any order.
    async fn security_groups(
        &self,
        service: &Service,
        project: &ProjectId,
    ) -> Result<Vec<SecurityGroupId>, DriverError>;
}
