//! Further networks of a pod, as the Network Plumbing Working Group has pods ask for them: the annotation
//! `k8s.v1.cni.cncf.io/networks` names `NetworkAttachmentDefinition`s, and each of these a subnet.

mod asked;
mod attachment;
mod index;

use std::sync::Arc;

use staffetta_driver::SubnetId;

pub use self::asked::NetworksError;
pub use self::attachment::NetworkAttachmentDefinition;
pub use self::index::Networks;
pub(super) use self::index::asks;

/// The annotation by which a pod asks for further networks.
pub const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";

/// Whether pods may have further networks: the choice `multi_vif_driver`.
///
/// ```
/// use staffetta_network::vif::networks::{FurtherNetworks, MultiVif};
///
/// /// A pod has one network.
/// struct One;
///
/// impl MultiVif for One {
///     fn further(&self) -> Option<FurtherNetworks> {
///         None
///     }
/// }
/// ```
pub trait MultiVif: Send + Sync {
    /// The further networks for which pods may ask; none when they may not.
    fn further(&self) -> Option<FurtherNetworks>;
}

/// Lets pods have further networks.
#[derive(Clone)]
pub struct FurtherNetworks {
    /// The networks that exist: an index that the registration feeds.
    pub networks: Arc<Networks>,
    /// The name of the VIF driver behind a pool that has one for all nodes: a network that wants another one cannot be had.
    pub driver: String,
}

/// The choice `npwg_multiple_interfaces`.
impl MultiVif for FurtherNetworks {
    fn further(&self) -> Option<FurtherNetworks> {
        Some(self.clone())
    }
}

/// The choice `noop`: a pod has one network.
pub struct OneNetwork;

impl MultiVif for OneNetwork {
    fn further(&self) -> Option<FurtherNetworks> {
        None
    }
}

/// A further interface that a pod is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Further {
    /// Its name in the pod.
    pub(super) interface: String,
    /// The subnet in which it has its address.
    pub(super) subnet: SubnetId,
    /// The VIF driver that the network asks for, if it asks for one.
    pub(super) driver: Option<String>,
}
