//! Namespaces: the driver that chooses their project, the driver of their networks, and the observer by which
//! drivers learn of them.

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Namespace;
use serde::{Deserialize, Serialize};

use crate::error::DriverError;
use crate::id::{NetworkId, Owned, Owner, ProjectId, SubnetId, Uid};

/// Chooses the cloud project of the resources that belong to a namespace as a whole, such as its network.
///
/// The result for a namespace never changes while the namespace exists. The call changes nothing in the cloud: a dry run calls it
/// too.
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
    /// Returns the project of `namespace`.
    async fn project(&self, namespace: &Namespace) -> Result<ProjectId, DriverError>;
}

/// Receives all namespaces, for a driver that needs their properties and does not call the API server itself.
///
/// The handler that uses the driver calls these methods from its watch of namespaces. All existing namespaces are recorded before
/// the first call of the driver. The methods run within the watch and must not block.
pub trait NamespaceObserver: Send + Sync {
    /// Records the current state of a namespace: at the start, when it is created and when it changes.
    fn present(&self, namespace: &Namespace);

    /// Records that the namespace with this name and UID was deleted. A new namespace with the same name may exist already.
    fn gone(&self, name: &str, uid: &Uid);
}

/// The cloud network of a namespace. As JSON, it is the value of the annotation [`NAMESPACE_NETWORK`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceNetwork {
    /// The id of the network.
    pub network: NetworkId,
    /// The id of the subnet from which the pods of the namespace get their addresses.
    pub subnet: SubnetId,
}

/// The name of the annotation of a namespace that contains its [`NamespaceNetwork`] as JSON. The driver that chooses the subnets
/// of pods reads it.
pub const NAMESPACE_NETWORK: &str = "staffetta.dev/namespace-network";

impl NamespaceNetwork {
    /// Parses the value of the annotation [`NAMESPACE_NETWORK`]. Fails if the value is not the JSON of this type.
    pub fn read(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Returns this network as JSON, the value of the annotation [`NAMESPACE_NETWORK`].
    pub fn write(&self) -> String {
        serde_json::to_string(self).expect("two texts are plain data")
    }
}

/// Manages a network for each namespace, with a subnet that is reached through a router.
///
/// Guarantees of every implementation:
///
/// * Every resource carries an ownership mark from its creation: the id of this cluster, and the owner. The resource is found by
///   this mark even if the response to the request that created it was lost. The owner is a namespace, so [`Owner::namespace`] is empty.
/// * [`ensure_network`](Self::ensure_network) and [`release_network`](Self::release_network) are idempotent and can be interrupted at any
///   point. Nothing is created twice: the repeated call finds the existing parts by their mark.
///
/// ```
/// use async_trait::async_trait;
/// use staffetta_driver::{
///     DriverError, Owned, NamespaceNetwork, NamespaceSubnetDriver, Owner, ProjectId, Reason,
/// };
///
/// /// One network for all namespaces.
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
///     async fn networks(&self) -> Result<Vec<Owned<Vec<NamespaceNetwork>>>, DriverError> {
///         Ok(Vec::new())
///     }
/// }
/// ```
#[async_trait]
pub trait NamespaceSubnetDriver: Send + Sync {
    /// Ensures that the namespace `owner` has a network in `project`, and returns the network. Completes the network whose ownership
    /// mark names `owner`, or creates a new one if there is none.
    async fn ensure_network(
        &self,
        owner: &Owner,
        project: &ProjectId,
    ) -> Result<NamespaceNetwork, DriverError>;

    /// Deletes all networks whose ownership mark names the namespace `owner`, with their subnets, and the resources of this cluster
    /// that remain in the networks. Fails with a [conflict](crate::Reason::Conflict) while a network is in use.
    async fn release_network(&self, owner: &Owner) -> Result<(), DriverError>;

    /// Lists the networks that carry this cluster's ownership mark, each with its subnets: one [`NamespaceNetwork`] for each subnet. An
    /// incomplete network has an empty list.
    async fn networks(&self) -> Result<Vec<Owned<Vec<NamespaceNetwork>>>, DriverError>;
}
