//! Drivers of pods: they choose the project, the subnets and the security groups, and manage the VIFs.

mod lifecycle;
mod placement;

use std::net::IpAddr;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::error::DriverError;
use crate::id::{Owned, Owner, ProjectId, SecurityGroupId, VifId};
use crate::milliseconds;
use crate::vif::{Subnet, Vif};

pub use self::lifecycle::PodLifecycle;
pub use self::placement::{PodProjectDriver, PodSecurityGroupsDriver, PodSubnetsDriver};

/// A request for a VIF of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VifRequest {
    /// The pod that gets the VIF.
    pub owner: Owner,
    /// The name of the node on which the pod runs.
    pub node_name: String,
    /// The IP address of that node (`status.hostIP` of the pod); `None` if the status does not contain it yet.
    pub host_ip: Option<IpAddr>,
    /// The project to which the VIF belongs.
    pub project: ProjectId,
    /// The subnets, all of one network. The VIF gets one address in each. Never empty.
    pub subnets: Vec<Subnet>,
    /// The security groups of the VIF; empty for the default ones of the external system.
    pub security_groups: Vec<SecurityGroupId>,
}

/// The current activation state of a VIF, as [`PodVifDriver::activate_vif`] returns it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(
    clippy::large_enum_variant,
    reason = "the value is used at once, and a box would burden every driver"
)]
pub enum Activation {
    /// The VIF is active. Contains its current state, for the annotation of the pod.
    Active(Vif),
    /// The VIF is not active yet.
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
/// * Every method waits only for its own requests. While a VIF is not active yet, [`activate_vif`](Self::activate_vif) returns
///   [`Activation::NotYet`] at once.
/// * A VIF carries an ownership mark from its creation: the id of this cluster, and the owner. [`vifs`](Self::vifs) finds it by
///   this mark even if the response to the request was lost.
/// * If a VIF may exist after an error of [`request_vif`](Self::request_vif), the error is [ambiguous](DriverError::ambiguous).
///   After any other error, no VIF was created.
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
///     async fn activate_vif(&self, _: &Owner, _: &Vif) -> Result<Activation, DriverError> {
///         Ok(Activation::NotYet { poll_after: Duration::from_secs(1) })
///     }
///     async fn vifs(&self, _: Option<&Owner>) -> Result<Vec<Owned<Vif>>, DriverError> {
///         Ok(Vec::new())
///     }
/// }
/// ```
#[async_trait]
pub trait PodVifDriver: Send + Sync {
    /// Creates a VIF for `request.owner`, with its ownership mark. The VIF may be inactive at first.
    async fn request_vif(&self, request: &VifRequest) -> Result<Vif, DriverError>;

    /// Releases a VIF of `owner`. A VIF that does not exist counts as released. A VIF with the ownership mark of another owner or another
    /// cluster is not changed, nor is a pooled VIF, whose mark names no owner.
    async fn release_vif(&self, owner: &Owner, vif: &Vif) -> Result<(), DriverError>;

    /// Reports whether `vif` of `owner` is active, without waiting until it is. The handler records the returned active VIF in the
    /// annotation of the pod. [`Reason::NotFound`](crate::Reason::NotFound) means that the VIF does not exist any more, and the
    /// pod needs another one. A VIF that neither bears the ownership mark of `owner` nor belongs to a pool of this cluster is not
    /// changed, and is [`Reason::Refused`](crate::Reason::Refused): `vif` comes from an annotation, which others may write.
    async fn activate_vif(&self, owner: &Owner, vif: &Vif) -> Result<Activation, DriverError>;

    /// Lists the VIFs that carry this cluster's ownership mark; with an `owner`, only those that are marked for it.
    async fn vifs(&self, owner: Option<&Owner>) -> Result<Vec<Owned<Vif>>, DriverError>;

    /// Lists the VIFs of pods that a previous controller created. They have no ownership mark, but contain the UID of their pod, which
    /// is returned as the owner. The namespace and the name of the owner may be empty. The default returns none.
    async fn unmarked_vifs(&self) -> Result<Vec<Owned<Vif>>, DriverError> {
        Ok(Vec::new())
    }

    /// Notifies the driver that a pod returned `vif` to a pool, so that the driver discards its cached activation state. It must
    /// not block. The default does nothing.
    fn vif_returned(&self, vif: &VifId) {
        let _ = vif;
    }
}
