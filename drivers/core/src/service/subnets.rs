//! The subnets of a service's load balancer.

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Service;

use crate::error::DriverError;
use crate::id::{ProjectId, SubnetId};

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
