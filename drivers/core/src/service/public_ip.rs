//! Public addresses of services of type `LoadBalancer`.

use std::net::IpAddr;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::error::DriverError;
use crate::id::{PortId, ProjectId, PublicIpId};
use crate::owner::{Owned, Owner};

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
    /// The id of an address that a previous controller allocated for the same service without an ownership mark. It is marked for
    /// the owner, unless it has a mark, is associated with another port or belongs to another project.
    pub adopt: Option<PublicIpId>,
}

/// Acquires, associates and releases the public addresses of services.
///
/// Guarantees of every implementation:
///
/// * An address of the pool carries an ownership mark from its allocation: the id of this cluster, and the owner.
///   [`public_ips`](Self::public_ips) finds it by this mark even if the response was lost.
/// * Every method can be repeated, with the same result. Nothing is allocated twice.
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

    /// Associates `public_ip` with `port`. If it is associated with another port, it is a [conflict](crate::Reason::Conflict).
    async fn associate(&self, public_ip: &PublicIp, port: &PortId) -> Result<(), DriverError>;

    /// Disassociates `public_ip` from `port`. Does nothing if it is not associated with `port`.
    async fn disassociate(&self, public_ip: &PublicIp, port: &PortId) -> Result<(), DriverError>;

    /// Releases an address that was allocated from the pool for `owner`. An address that does not exist counts as released.
    /// Addresses of users, and those that are marked for another owner, are not changed.
    async fn release(&self, owner: &Owner, public_ip: &PublicIp) -> Result<(), DriverError>;
}
