//! The project, the subnets and the security groups of a service's load balancer.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Service;

use crate::error::DriverError;
use crate::id::{ProjectId, SecurityGroupId, SubnetId};
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

/// Says in which subnets the cluster IP of a service lies.
///
/// A load balancer has one address and so one subnet: the handler takes the first. An empty answer is an error of the
/// configuration, and the handler says so. The same service gets the same answer for as long as it keeps its cluster IP.
/// It changes nothing: a dry run calls it too.
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
    /// The subnets of `service`, which belongs to `project`.
    async fn subnets(&self, service: &Service, project: &ProjectId) -> Result<Vec<SubnetId>, DriverError>;
}

/// Returns the security groups of the address of a service's load balancer. An empty answer means the default of the external
/// system. The order has no meaning; the handler sorts. It changes nothing: a dry run calls it too.
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
