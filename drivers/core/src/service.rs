//! Drivers of services: they choose the project, the subnets and the security groups, and manage public addresses.

use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Service;
use serde::{Deserialize, Serialize};

use crate::error::DriverError;
use crate::id::{Owned, Owner, PortId, ProjectId, PublicIpId, SecurityGroupId, SubnetId};
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

    /// Returns the observer to which the handler passes all namespaces before the first call of this driver, and then every change;
    /// `None`, the default, if the driver needs none.
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

/// A public address (in OpenStack a floating IP), which can be associated with the port of a load balancer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublicIp {
    /// The id of the public address in the cloud.
    pub id: PublicIpId,
    /// The public address itself.
    pub ip: IpAddr,
    /// The origin of the address, which determines whether the driver may release it.
    pub allocation: Allocation,
    /// The port with which the address is associated; `None` if there is none.
    pub port: Option<PortId>,
}

/// The origin of a public address, which determines whether the driver releases it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Allocation {
    /// The driver allocated the address from its pool, marked it for the owner, and releases it.
    Pool,
    /// The user allocated the address and named it in `spec.loadBalancerIP` of the service. It has no ownership mark and is never
    /// released.
    User,
}

/// A request for the public address of a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublicIpRequest {
    /// The project to which the address belongs.
    pub project: ProjectId,
    /// The address that the user named; it must belong to `project`. `None` allocates any address from the pool.
    pub named: Option<IpAddr>,
    /// The port with which the address will be associated. A named address that is associated with another port is a conflict.
    pub port: PortId,
    /// The id of an address that a previous controller allocated for the same service without an ownership mark; `None` if there
    /// is none. It is marked for the owner, unless it has a mark, is associated with another port or belongs to another project.
    pub adopt: Option<PublicIpId>,
}

/// Acquires, associates and releases the public addresses of services.
///
/// Guarantees of every implementation:
///
/// * An address of the pool carries an ownership mark from its allocation: the id of this cluster, and the owner.
///   [`public_ips`](Self::public_ips) finds it by this mark even if the response was lost.
/// * Every method is idempotent. Nothing is allocated twice.
/// * If a change may have taken effect despite an error, the error is [ambiguous](DriverError::ambiguous).
///
/// ```
/// use async_trait::async_trait;
/// use staffetta_driver::{
///     DriverError, Owned, Owner, PortId, PublicIp, PublicIpRequest, Reason, ServicePublicIpDriver,
/// };
///
/// /// A cluster without public addresses.
/// struct Private;
///
/// #[async_trait]
/// impl ServicePublicIpDriver for Private {
///     async fn public_ips(&self, _: Option<&Owner>) -> Result<Vec<Owned<PublicIp>>, DriverError> {
///         Ok(Vec::new())
///     }
///     async fn acquire(&self, owner: &Owner, _: &PublicIpRequest) -> Result<PublicIp, DriverError> {
///         Err(DriverError::new(Reason::Unsupported, "allocate a public address").detail(owner.to_string()))
///     }
///     async fn associate(&self, _: &PublicIp, _: &PortId) -> Result<(), DriverError> {
///         Ok(())
///     }
///     async fn disassociate(&self, _: &PublicIp, _: &PortId) -> Result<(), DriverError> {
///         Ok(())
///     }
///     async fn release(&self, _: &Owner, _: &PublicIp) -> Result<(), DriverError> {
///         Ok(())
///     }
/// }
/// ```
#[async_trait]
pub trait ServicePublicIpDriver: Send + Sync {
    /// Lists the public addresses that carry this cluster's ownership mark; with an `owner`, only those that are marked for it.
    /// Without an `owner`, the addresses of users, which have no mark, are included.
    async fn public_ips(&self, owner: Option<&Owner>) -> Result<Vec<Owned<PublicIp>>, DriverError>;

    /// Returns an address for `owner`: the one that the user named, the one that is already marked for `owner`, or a new one from
    /// the pool. A named address that does not exist in the project is [`Reason::NotFound`](crate::Reason::NotFound). If it is
    /// marked for another service, or is associated with another port, it is a [conflict](crate::Reason::Conflict).
    async fn acquire(&self, owner: &Owner, request: &PublicIpRequest) -> Result<PublicIp, DriverError>;

    /// Associates `public_ip` with `port`. Fails with a [conflict](crate::Reason::Conflict) if it is associated with another port.
    async fn associate(&self, public_ip: &PublicIp, port: &PortId) -> Result<(), DriverError>;

    /// Disassociates `public_ip` from `port`. Does nothing if it is not associated with `port`.
    async fn disassociate(&self, public_ip: &PublicIp, port: &PortId) -> Result<(), DriverError>;

    /// Releases an address that was allocated from the pool for `owner`. An address that does not exist counts as released.
    /// Addresses of users, and those that are marked for another owner, are not changed.
    async fn release(&self, owner: &Owner, public_ip: &PublicIp) -> Result<(), DriverError>;
}
