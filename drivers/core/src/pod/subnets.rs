//! The subnets of a pod.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;

use crate::error::{DriverError, Reason};
use crate::id::{ProjectId, SubnetId};
use crate::namespace::NamespaceObserver;
use crate::network::Subnet;

/// Says in which subnets a pod gets its addresses.
///
/// All subnets of one answer belong to one network; the pod gets one address in each. An empty answer is an error of the
/// configuration, and the handler says so.
/// It changes nothing: a dry run calls it too.
///
/// ```
/// use async_trait::async_trait;
/// use k8s_openapi::api::core::v1::Pod;
/// use staffetta_driver::{DriverError, PodSubnetsDriver, ProjectId, Subnet};
///
/// /// One subnet for all.
/// struct Flat(Subnet);
///
/// #[async_trait]
/// impl PodSubnetsDriver for Flat {
///     async fn subnets(&self, _: &Pod, _: &ProjectId) -> Result<Vec<Subnet>, DriverError> {
///         Ok(vec![self.0.clone()])
///     }
/// }
/// ```
#[async_trait]
pub trait PodSubnetsDriver: Send + Sync {
    /// The subnets of `pod`, which belongs to `project`.
    async fn subnets(&self, pod: &Pod, project: &ProjectId) -> Result<Vec<Subnet>, DriverError>;

    /// The subnet of that id: a further network of a pod names one.
    async fn subnet(&self, id: &SubnetId) -> Result<Subnet, DriverError> {
        Err(DriverError::new(Reason::Unsupported, "find a subnet by its id").detail(format!("subnet {id}")))
    }

    /// The observer that must receive all namespaces before the first call of this driver; `None` by default.
    fn namespaces(&self) -> Option<Arc<dyn NamespaceObserver>> {
        None
    }
}
