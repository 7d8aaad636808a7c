//! Creates, activates, lists and releases the VIFs of pods.

use std::net::IpAddr;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::error::DriverError;
use crate::id::{ProjectId, SecurityGroupId, VifId};
use crate::milliseconds;
use crate::network::Subnet;
use crate::owner::{Owned, Owner};
use crate::vif::Vif;

/// A request for a VIF.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VifRequest {
    /// The pod that gets it.
    pub owner: Owner,
    /// The name of the node on which the pod runs.
    pub node_name: String,
    /// The address of that node, if the pod's status contains it already.
    pub host_ip: Option<IpAddr>,
    /// The project.
    pub project: ProjectId,
    /// The subnets, all of one network: one address in each. Never empty.
    pub subnets: Vec<Subnet>,
    /// The security groups.
    pub security_groups: Vec<SecurityGroupId>,
}

/// The activation state of a VIF.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(
    clippy::large_enum_variant,
    reason = "the value is used at once, and a box would burden every driver"
)]
pub enum Activation {
    /// The VIF is active.
    Active(Vif),
    /// Not yet.
    NotYet {
        /// The delay before the next poll. In JSON, whole milliseconds.
        #[serde(rename = "poll_after_ms", with = "milliseconds")]
        poll_after: Duration,
    },
}

/// Creates, activates, lists and releases the VIFs of pods in one cloud.
///
/// Guarantees of every implementation:
///
/// * Every method waits for its own requests only. Slow activation is reported by [`Activation::NotYet`].
/// * A VIF carries the mark of this cluster and of its owner from its creation, so that [`vifs`](Self::vifs) finds it even if
///   the answer to the request was lost.
/// * An error after which a VIF may exist is [ambiguous](DriverError::ambiguous); after any other error of
///   [`request_vif`](Self::request_vif) none exists.
///
/// ```
/// use std::time::Duration;
/// use async_trait::async_trait;
/// use staffetta_driver::{Activation, DriverError, Owned, Owner, PodVifDriver, Reason, Vif, VifRequest};
///
/// /// A cloud without VIFs.
/// struct Nowhere;
///
/// #[async_trait]
/// impl PodVifDriver for Nowhere {
///     async fn request_vif(&self, request: &VifRequest) -> Result<Vif, DriverError> {
///         Err(DriverError::new(Reason::Unsupported, "request a VIF").detail(request.owner.to_string()))
///     }
///     async fn release_vif(&self, _: &Owner, _: &Vif) -> Result<(), DriverError> {
///         Ok(())
///     }
///     async fn activate_vif(&self, _: &Vif) -> Result<Activation, DriverError> {
///         Ok(Activation::NotYet { poll_after: Duration::from_secs(1) })
///     }
///     async fn vifs(&self, _: Option<&Owner>) -> Result<Vec<Owned<Vif>>, DriverError> {
///         Ok(Vec::new())
///     }
/// }
/// ```
#[async_trait]
pub trait PodVifDriver: Send + Sync {
    /// Creates a VIF with the mark of this cluster and of `request.owner`. It may be inactive at first.
    async fn request_vif(&self, request: &VifRequest) -> Result<Vif, DriverError>;

    /// Releases a VIF of `owner`. One that does not exist counts as released; one that is marked for another owner or another
    /// cluster is left alone, and so is a pooled one, which is marked for no owner.
    async fn release_vif(&self, owner: &Owner, vif: &Vif) -> Result<(), DriverError>;

    /// Reports, without waiting, whether `vif` is active. If so, the returned VIF is recorded in the annotation.
    /// [`Reason::NotFound`](crate::Reason::NotFound) means that the VIF does not exist any more: its owner needs another one.
    async fn activate_vif(&self, vif: &Vif) -> Result<Activation, DriverError>;

    /// Lists the VIFs with the mark of this cluster, or those of `owner` only.
    async fn vifs(&self, owner: Option<&Owner>) -> Result<Vec<Owned<Vif>>, DriverError>;

    /// Notifies the driver that a pod returned `vif` to a pool, so that it forgets the activation of the VIF. It must not block.
    fn vif_returned(&self, vif: &VifId) {
        let _ = vif;
    }
}
