//! The driver behind a VIF pool, which creates VIFs in bulk and without an owner.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::error::DriverError;
use crate::id::{NetworkId, Owned, ProjectId, SecurityGroupId, SubnetId, VifId};
use crate::pod::VifRequest;
use crate::vif::{Subnet, Vif};

/// The properties by which pooled VIFs are divided into pools: node, project, network and subnets. VIFs with the same key are
/// interchangeable after their security groups were made equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct VifPoolKey {
    /// The name of the node, or one of its IP addresses, as [`BulkVifDriver::host`] returns it. [`BulkVifDriver::list_vifs`]
    /// returns the same form.
    pub host: String,
    /// The project of the VIFs.
    pub project: ProjectId,
    /// The network of the VIFs.
    pub network: NetworkId,
    /// The subnets, sorted. A VIF has one address in each.
    pub subnets: Vec<SubnetId>,
}

impl VifPoolKey {
    /// Returns the key of a VIF for `request` on `host`. The network is that of the first subnet, and empty if there are no
    /// subnets.
    pub fn new(host: impl Into<String>, request: &VifRequest) -> Self {
        let mut subnets: Vec<_> = request.subnets.iter().map(|subnet| subnet.id.clone()).collect();
        subnets.sort_unstable();
        let network = request.subnets.first().map(|subnet| subnet.network.id.clone()).unwrap_or_default();
        Self { host: host.into(), project: request.project.clone(), network, subnets }
    }
}

/// A request for several VIFs with the same properties.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BulkVifRequest {
    /// The node, project, network and subnets of the VIFs.
    pub key: VifPoolKey,
    /// The subnets of `key`, with the properties that a VIF contains.
    pub subnets: Vec<Subnet>,
    /// The security groups of the VIFs; empty for the default ones of the external system.
    pub security_groups: Vec<SecurityGroupId>,
    /// The number of VIFs, 1 or more.
    pub count: usize,
}

/// The result of a [`BulkVifRequest`]. Fewer VIFs than requested without a failure are normal: one call may be unable to create
/// more.
#[derive(Clone, Debug, Default)]
pub struct BulkVifResult {
    /// The VIFs that were created.
    pub vifs: Vec<Vif>,
    /// The reason why fewer VIFs were created than requested; `None` if nothing failed. If it is [ambiguous](DriverError::ambiguous),
    /// more VIFs may exist, which [`BulkVifDriver::list_vifs`] returns.
    pub failure: Option<DriverError>,
}

/// A VIF whose ownership mark names this cluster and no owner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PooledVif {
    /// The node, project, network and subnets of the VIF.
    pub key: VifPoolKey,
    /// The security groups of the VIF, in any order; empty if it has just the default ones of the external system.
    pub security_groups: Vec<SecurityGroupId>,
    /// The current state of the VIF.
    pub vif: Vif,
}

/// All VIFs whose ownership mark names this cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PooledVifList {
    /// The VIFs that are completely created, free or in use by pods.
    pub usable: Vec<PooledVif>,
    /// VIFs that lack the binding, the address or the VLAN that they need, and are not being created. Most were left behind by an
    /// interrupted call. A VIF that is being repaired, or that was damaged while a pod uses it, is listed here too.
    pub incomplete: Vec<PooledVif>,
    /// The VIFs whose ownership mark names an owner, too, as [`PodVifDriver::vifs`](crate::PodVifDriver::vifs) returns them.
    pub owned: Vec<Owned<Vif>>,
}

/// Creates, changes, lists and deletes pooled VIFs in one cloud.
///
/// The ownership mark of a pooled VIF names this cluster and no owner for as long as the VIF exists. The pod that uses it is
/// recorded only in the annotation of that pod. The pool is the only caller, and never changes the same VIF by two calls at the
/// same time.
///
/// Guarantees of every implementation:
///
/// * Every method waits only for its own requests, and has its own timeout.
/// * [`create_vifs`](Self::create_vifs) returns every VIF that it created, unless its failure is
///   [ambiguous](DriverError::ambiguous).
/// * If no more VIFs can be created, the failure is [`Quota`](crate::Reason::Quota) or [`NoAddress`](crate::Reason::NoAddress).
///   If the cloud fails or throttles, it is [`Unavailable`](crate::Reason::Unavailable), with the delay of
///   [`retry_after`](DriverError::retry_after) if the cloud names one.
///
/// ```
/// use async_trait::async_trait;
/// use staffetta_driver::{
///     DriverError, Reason, SecurityGroupId, PooledVifList, BulkVifResult, BulkVifRequest, Vif, VifId, VifRequest, BulkVifDriver,
/// };
///
/// /// A cloud without room for ports.
/// struct Barren;
///
/// #[async_trait]
/// impl BulkVifDriver for Barren {
///     fn host(&self, request: &VifRequest) -> Result<String, DriverError> {
///         Ok(request.node_name.clone())
///     }
///     async fn create_vifs(&self, _: &BulkVifRequest) -> BulkVifResult {
///         BulkVifResult { vifs: Vec::new(), failure: Some(DriverError::new(Reason::Quota, "make ports")) }
///     }
///     async fn set_security_groups(&self, _: &Vif, _: &[SecurityGroupId]) -> Result<(), DriverError> {
///         Err(DriverError::new(Reason::NotFound, "change a port"))
///     }
///     async fn delete_vifs(&self, _: &[Vif]) -> Vec<(VifId, DriverError)> {
///         Vec::new()
///     }
///     async fn list_vifs(&self) -> Result<PooledVifList, DriverError> {
///         Ok(PooledVifList::default())
///     }
///     fn is_active_unbound(&self, _: &Vif) -> bool {
///         false
///     }
/// }
/// ```
#[async_trait]
pub trait BulkVifDriver: Send + Sync {
    /// Returns the [`VifPoolKey::host`] of a VIF for `request`: the name of the node, or the IP address by which the cloud knows the
    /// node. Fails if the request does not contain the address yet.
    fn host(&self, request: &VifRequest) -> Result<String, DriverError>;

    /// Creates VIFs with as few requests as possible. If fewer VIFs than requested are returned without a failure, the pool calls
    /// it again at once for the missing VIFs.
    async fn create_vifs(&self, order: &BulkVifRequest) -> BulkVifResult;

    /// Replaces the security groups of `vif`; an empty list means the default ones of the external system. Fails with
    /// [`NotFound`](crate::Reason::NotFound) if the VIF does not exist, and with [`Refused`](crate::Reason::Refused) if a group
    /// does not exist.
    async fn set_security_groups(
        &self,
        vif: &Vif,
        security_groups: &[SecurityGroupId],
    ) -> Result<(), DriverError>;

    /// Deletes those of `vifs` that belong to this cluster and to no pod, according to their ownership marks; others are left alone. A VIF
    /// that does not exist counts as deleted. Returns each VIF whose deletion failed, or has an unknown result, with the error.
    async fn delete_vifs(&self, vifs: &[Vif]) -> Vec<(VifId, DriverError)>;

    /// Lists all VIFs whose ownership mark names this cluster, including those that pods use. It changes nothing: the pool itself
    /// deletes incomplete VIFs that no pod uses.
    async fn list_vifs(&self) -> Result<PooledVifList, DriverError>;

    /// Returns `true` if `vif` is active independently of a pod, as subports of a trunk are. Such a VIF becomes active while it
    /// is free in the pool. Any other VIF becomes active only after the node of a pod has bound it.
    fn is_active_unbound(&self, vif: &Vif) -> bool;
}
