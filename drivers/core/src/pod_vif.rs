//! Makes, activates, finds and releases the VIFs of pods.

use std::net::IpAddr;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::error::DriverError;
use crate::id::{ProjectId, SecurityGroupId};
use crate::milliseconds;
use crate::network::Subnet;
use crate::owner::{Marked, Owner};
use crate::vif::Vif;

/// What is known of a VIF before it is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VifRequest {
    /// The pod that gets it.
    pub owner: Owner,
    /// The name of the node on which the pod runs.
    pub node_name: String,
    /// The address of that node, where the pod's status already tells it.
    pub host_ip: Option<IpAddr>,
    /// The project.
    pub project: ProjectId,
    /// The subnets, all of one network: one address in each. Never empty.
    pub subnets: Vec<Subnet>,
    /// The security groups.
    pub security_groups: Vec<SecurityGroupId>,
}

/// Whether packets pass.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(
    clippy::large_enum_variant,
    reason = "an answer is used up at once, and a box would be in every driver's way"
)]
pub enum Activation {
    /// They do.
    Active(Vif),
    /// Not yet.
    NotYet {
        /// When it is worth asking again. In JSON, whole milliseconds.
        #[serde(rename = "ask_again_ms", with = "milliseconds")]
        ask_again: Duration,
    },
}

/// Makes, activates, finds and releases the VIFs of pods in one other world.
///
/// What every implementation guarantees:
///
/// * No method waits for anything but its own requests. What takes longer is told by [`Activation::NotYet`].
/// * What is made carries the mark of this cluster and of its owner from its first moment, so that
///   [`vifs`](Self::vifs) finds it even when the answer to the request got lost.
/// * An error that leaves open whether something was made says so ([`DriverError::ambiguous`]); after any other error of
///   [`request_vif`](Self::request_vif) nothing is left behind.
///
/// ```
/// use std::time::Duration;
/// use async_trait::async_trait;
/// use staffetta_driver::{Activation, DriverError, Marked, Owner, PodVifDriver, Reason, Vif, VifRequest};
///
/// /// A world without VIFs.
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
///         Ok(Activation::NotYet { ask_again: Duration::from_secs(1) })
///     }
///     async fn vifs(&self, _: Option<&Owner>) -> Result<Vec<Marked<Vif>>, DriverError> {
///         Ok(Vec::new())
///     }
/// }
/// ```
#[async_trait]
pub trait PodVifDriver: Send + Sync {
    /// Makes a VIF and marks it with this cluster and `request.owner`. It may be not active yet.
    async fn request_vif(&self, request: &VifRequest) -> Result<Vif, DriverError>;

    /// Gives back what `owner` holds. A VIF that does not exist is released already; one that by now is marked for
    /// another owner or another cluster is left alone, and so is one of this cluster that is marked for nobody: it is a pool's.
    async fn release_vif(&self, owner: &Owner, vif: &Vif) -> Result<(), DriverError>;

    /// Says at once whether `vif` is active; the active one is as it is to be written down. [`Reason::NotFound`] says that
    /// there is no such VIF any more, or never will be: who holds it needs another one.
    async fn activate_vif(&self, vif: &Vif) -> Result<Activation, DriverError>;

    /// Everything that this cluster marked, or what of it is marked for `owner`.
    async fn vifs(&self, owner: Option<&Owner>) -> Result<Vec<Marked<Vif>>, DriverError>;
}
