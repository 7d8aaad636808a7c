//! Drivers that choose the project, the subnets and the security groups of a pod.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;

use crate::error::{DriverError, Reason};
use crate::id::{ProjectId, SecurityGroupId, SubnetId};
use crate::namespace::NamespaceObserver;
use crate::network_policy::NetworkPolicyObserver;
use crate::vif::Subnet;

/// Chooses the cloud project of a pod.
///
/// The result for a pod never changes while the pod exists. The call changes nothing in the cloud: a dry run calls it too.
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
    /// Returns the project of `pod`.
    async fn project(&self, pod: &Pod) -> Result<ProjectId, DriverError>;

    /// Returns the observer to which the handler passes all namespaces before the first call of this driver, and then every change;
    /// `None`, the default, if the driver needs none.
    fn namespaces(&self) -> Option<Arc<dyn NamespaceObserver>> {
        None
    }
}

/// Chooses the subnets in which a pod gets its addresses.
///
/// All returned subnets belong to one network, and the pod gets one address in each. An empty result is a configuration error,
/// which the handler reports. The call changes nothing in the cloud: a dry run calls it too.
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
    /// Returns the subnets of `pod`, which belongs to `project`.
    async fn subnets(&self, pod: &Pod, project: &ProjectId) -> Result<Vec<Subnet>, DriverError>;

    /// Returns the subnet with this id, for an additional network of a pod that belongs to `project`. The id comes from a user:
    /// fails with [`Reason::Refused`] for a subnet that pods of this project may not use. The default implementation fails with
    /// [`Reason::Unsupported`].
    async fn subnet(&self, id: &SubnetId, project: &ProjectId) -> Result<Subnet, DriverError> {
        let _ = project;
        Err(DriverError::new(Reason::Unsupported, "find a subnet by its id").detail(format!("subnet {id}")))
    }

    /// Returns the observer to which the handler passes all namespaces before the first call of this driver, and then every change;
    /// `None`, the default, if the driver needs none.
    fn namespaces(&self) -> Option<Arc<dyn NamespaceObserver>> {
        None
    }
}

/// Chooses the security groups of a new VIF of a pod. An empty result means the default security groups of the external system.
/// The call changes nothing in the cloud: a dry run calls it too.
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
    /// Returns the security groups of `pod`, which belongs to `project`, in any order.
    async fn security_groups(
        &self,
        pod: &Pod,
        project: &ProjectId,
    ) -> Result<Vec<SecurityGroupId>, DriverError>;

    /// Returns the observer to which the handler passes all namespaces before the first call of this driver, and then every change;
    /// `None`, the default, if the driver needs none.
    fn namespaces(&self) -> Option<Arc<dyn NamespaceObserver>> {
        None
    }

    /// Returns the observer that must receive all network policies before the first call of this driver; `None`, the default, if
    /// the driver needs none.
    fn policies(&self) -> Option<Arc<dyn NetworkPolicyObserver>> {
        None
    }
}
