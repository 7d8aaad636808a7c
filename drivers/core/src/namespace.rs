//! Namespaces: their project, their network, and observers of them.

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Namespace;
use serde::{Deserialize, Serialize};

use crate::error::DriverError;
use crate::id::{NetworkId, ProjectId, SubnetId, Uid};
use crate::owner::{Owned, Owner};

/// Chooses the project of the resources of a namespace as a whole, such as its network.
///
/// The same namespace gets the same answer for as long as it lives.
/// It changes nothing: a dry run calls it too.
///
/// ```
/// use async_trait::async_trait;
/// use k8s_openapi::api::core::v1::Namespace;
/// use staffetta_driver::{DriverError, NamespaceProjectDriver, ProjectId, Reason};
///
/// /// A project for each namespace, with the namespace's own name.
/// struct ByName;
///
/// #[async_trait]
/// impl NamespaceProjectDriver for ByName {
///     async fn project(&self, namespace: &Namespace) -> Result<ProjectId, DriverError> {
///         let missing = || DriverError::new(Reason::NotFound, "read the namespace's name");
///         namespace.metadata.name.as_deref().map(ProjectId::from).ok_or_else(missing)
///     }
/// }
/// ```
#[async_trait]
pub trait NamespaceProjectDriver: Send + Sync {
    /// The project of `namespace`.
    async fn project(&self, namespace: &Namespace) -> Result<ProjectId, DriverError>;
}

/// Observes all namespaces, for a driver that needs their properties without a call to the API server.
///
/// The handler that uses the driver feeds it from its watch of namespaces, with all existing ones before the first call of the
/// driver. A method runs within the watch and must not block.
pub trait NamespaceObserver: Send + Sync {
    /// Records a namespace that exists, in its current state.
    fn present(&self, namespace: &Namespace);

    /// Records that the namespace with that name and UID is gone. Another one with the name may exist.
    fn gone(&self, name: &str, uid: &Uid);
}

/// The network of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceNetwork {
    /// The network.
    pub network: NetworkId,
    /// The subnet in which the namespace's pods get their addresses.
    pub subnet: SubnetId,
}

/// The annotation of a namespace by which the driver of its pods' subnets knows its network: [`NamespaceNetwork`] as JSON.
pub const NAMESPACE_NETWORK: &str = "staffetta.dev/namespace-network";

impl NamespaceNetwork {
    /// Parses the annotation.
    pub fn read(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// The text of the annotation.
    pub fn write(&self) -> String {
        serde_json::to_string(self).expect("two texts are plain data")
    }
}

/// Gives namespaces networks of their own, each with a subnet that is reached through a router.
///
/// Guarantees of every implementation:
///
/// * Every resource carries the mark of this cluster and of its owner from its creation, so that it is found even if the
///   answer to the request was lost. The owner is a namespace: [`Owner::namespace`] is empty.
/// * Both changes can be interrupted anywhere and made again, with the same result and nothing made twice. What failed
///   half-way is found by its mark.
///
/// ```
/// use async_trait::async_trait;
/// use staffetta_driver::{
///     DriverError, Owned, NamespaceNetwork, NamespaceSubnetDriver, Owner, ProjectId, Reason,
/// };
///
/// /// A world with one network for all.
/// struct Flat;
///
/// #[async_trait]
/// impl NamespaceSubnetDriver for Flat {
///     async fn ensure_network(&self, _: &Owner, _: &ProjectId) -> Result<NamespaceNetwork, DriverError> {
///         Ok(NamespaceNetwork { network: "all".into(), subnet: "all".into() })
///     }
///     async fn release_network(&self, _: &Owner) -> Result<(), DriverError> {
///         Ok(())
///     }
///     async fn networks(&self) -> Result<Vec<Owned<()>>, DriverError> {
///         Ok(Vec::new())
///     }
/// }
/// ```
#[async_trait]
pub trait NamespaceSubnetDriver: Send + Sync {
    /// The network of `owner`, which belongs to `project`: the one that is marked for it, with whatever it still lacks, or a
    /// new one.
    async fn ensure_network(
        &self,
        owner: &Owner,
        project: &ProjectId,
    ) -> Result<NamespaceNetwork, DriverError>;

    /// Deletes all resources that are marked for `owner`, and those that this cluster left in its network. While the network is in
    /// use, it fails with a [conflict](crate::Reason::Conflict).
    async fn release_network(&self, owner: &Owner) -> Result<(), DriverError>;

    /// Lists the owners of the networks with the mark of this cluster, complete or not.
    async fn networks(&self) -> Result<Vec<Owned<()>>, DriverError>;
}
