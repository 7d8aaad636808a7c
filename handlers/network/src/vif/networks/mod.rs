//! Further networks of a pod, as the Network Plumbing Working Group has pods ask for them: the annotation
//! `k8s.v1.cni.cncf.io/networks` names `NetworkAttachmentDefinition`s, and each of these a subnet.

mod asked;
mod attachment;
mod index;

use staffetta_driver::SubnetId;

pub use self::asked::NetworksError;
pub use self::attachment::NetworkAttachmentDefinition;
pub use self::index::Networks;
pub(super) use self::index::asks;

/// The annotation by which a pod asks for further networks.
pub const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";

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
