//! Public addresses of services of type `LoadBalancer`.

use std::net::IpAddr;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::error::DriverError;
use crate::id::{PortId, ProjectId, PublicIpId};
use crate::owner::{Owned, Owner};

/// A public address (in OpenStack a floating IP) that is associated with the port of a load balancer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublicIp {
    /// The id.
    pub id: PublicIpId,
    /// The address.
    pub ip: IpAddr,
    /// The origin of the address.
    pub allocation: Allocation,
    /// The port with which it is associated, if any.
    pub port: Option<PortId>,
}

/// The origin of a public address, which determines if it is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Allocation {
    /// The driver took it out of its pool, marked it, and frees it.
    Pool,
    /// The user made it and named it in `spec.loadBalancerIP`. It bears no mark and is never freed.
    User,
}

/// A request for a public address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublicIpRequest {
    /// The project that pays for it.
    pub project: ProjectId,
    /// The address that the user named, of that project; none to take any out of the pool.
    pub named: Option<IpAddr>,
    /// The port for which it is wanted. A named address that is associated with another port is not free.
    pub port: PortId,
    /// An address of the pool that an earlier controller took for the same service without a mark: it gets the mark of the owner,
    /// unless it is associated with another port or belongs to another project.
    pub adopt: Option<PublicIpId>,
}

/// Acquires, associates and releases the public addresses of services.
///
/// Guarantees of every implementation:
///
/// * An address of the pool carries the mark of this cluster and of its owner from the beginning, so that
///   [`public_ips`](Self::public_ips) finds it even if the answer was lost.
/// * Every method may be repeated: the result is the same, and nothing is taken twice.
/// * An error after which the change may have taken effect is [ambiguous](DriverError::ambiguous).
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
    /// Lists the public addresses with the mark of this cluster, or those of `owner` only. Without an owner, unmarked addresses
    /// of users are included.
    async fn public_ips(&self, owner: Option<&Owner>) -> Result<Vec<Owned<PublicIp>>, DriverError>;

    /// Takes an address out of the pool and marks it, or finds the one that the user named and says whether it is free.
    async fn acquire(&self, owner: &Owner, request: &PublicIpRequest) -> Result<PublicIp, DriverError>;

    /// Associates `public_ip` with `port`.
    async fn associate(&self, public_ip: &PublicIp, port: &PortId) -> Result<(), DriverError>;

    /// Disassociates `public_ip` from `port`. If it is not associated with `port`, it is left alone.
    async fn disassociate(&self, public_ip: &PublicIp, port: &PortId) -> Result<(), DriverError>;

    /// Puts an address back into the pool from which it was taken for `owner`. One that does not exist is released
    /// already; the user's own, and one that is marked for another owner, are left alone.
    async fn release(&self, owner: &Owner, public_ip: &PublicIp) -> Result<(), DriverError>;
}
