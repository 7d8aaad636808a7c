//! The driver behind a pool: it creates VIFs in bulk, without an owner.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::error::DriverError;
use crate::id::{NetworkId, ProjectId, SecurityGroupId, SubnetId, VifId};
use crate::network::Subnet;
use crate::pod::VifRequest;
use crate::vif::Vif;

/// The key of pooled VIFs: any two with the same key are interchangeable once their security groups
/// are the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct VifPoolKey {
    /// The node: its name, or one of its addresses. The driver's list contains the same one.
    pub host: String,
    /// The project.
    pub project: ProjectId,
    /// The network.
    pub network: NetworkId,
    /// The subnets in which it has an address each, sorted.
    pub subnets: Vec<SubnetId>,
}

impl VifPoolKey {
    /// Returns the key of VIFs for `request` on `host`.
    pub fn new(host: impl Into<String>, request: &VifRequest) -> Self {
        let mut subnets: Vec<_> = request.subnets.iter().map(|subnet| subnet.id.clone()).collect();
        subnets.sort_unstable();
        let network = request.subnets.first().map(|subnet| subnet.network.id.clone()).unwrap_or_default();
        Self { host: host.into(), project: request.project.clone(), network, subnets }
    }
}

/// A request for VIFs that are all alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BulkVifRequest {
    /// The key of the VIFs.
    pub key: VifPoolKey,
    /// The subnets of the key, with the properties that a VIF contains.
    pub subnets: Vec<Subnet>,
    /// The security groups.
    pub security_groups: Vec<SecurityGroupId>,
    /// The number of VIFs, 1 or more.
    pub count: usize,
}

/// The result of a [`BulkVifRequest`]. Fewer VIFs than requested is not an error, and may be all that one call can create.
#[derive(Clone, Debug, Default)]
pub struct BulkVifResult {
    /// The VIFs that were created.
    pub vifs: Vec<Vif>,
    /// The reason why there are not more. If it is [ambiguous](DriverError::ambiguous), more may exist, as the list shows.
    pub failure: Option<DriverError>,
}

/// A VIF that carries the mark of this cluster and of no owner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PooledVif {
    /// The key of the VIF.
    pub key: VifPoolKey,
    /// Its security groups, in any order; none if it has just those of a VIF that is created without any.
    pub security_groups: Vec<SecurityGroupId>,
    /// The VIF as it is now.
    pub vif: Vif,
}

/// The VIFs with the mark of this cluster and without an owner.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PooledVifList {
    /// The VIFs that can be handed out, and those that pods use.
    pub usable: Vec<PooledVif>,
    /// VIFs without the binding, the address or the VLAN that they need, and not being created. Most were left behind by an
    /// interrupted call; one that is being repaired looks the same, and so does one that a pod uses and that was damaged.
    pub incomplete: Vec<PooledVif>,
}

/// Creates, changes, lists and deletes pooled VIFs in one cloud.
///
/// A pooled VIF carries the mark of this cluster and none of an owner, for as long as it exists: the pod that uses it is
/// recorded in the annotation of that pod only. The pool is the only caller, and never changes one VIF by two calls at a time.
///
/// Guarantees of every implementation:
///
/// * Every method waits for its own requests only, and has a timeout of its own.
/// * Unless its failure is ambiguous, [`create_vifs`](Self::create_vifs) returns every VIF that it created.
/// * A failure is typed: [`Quota`](crate::Reason::Quota) and [`NoAddress`](crate::Reason::NoAddress) when no more VIFs
///   can be created, [`Unavailable`](crate::Reason::Unavailable) when the cloud fails or throttles, with
///   [`retry_after`](DriverError::retry_after) if it says for how long.
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
    /// Returns the host in the key of VIFs for `request`: the name of the node, or the address by which the cloud knows it.
    /// Fails if the request does not contain it yet.
    fn host(&self, request: &VifRequest) -> Result<String, DriverError>;

    /// Creates VIFs with as few requests as possible. If it returns fewer than requested and no failure, it is called for the
    /// rest at once.
    async fn create_vifs(&self, order: &BulkVifRequest) -> BulkVifResult;

    /// Replaces the security groups of `vif`; an empty list means those of a VIF that is created without any. Fails with
    /// [`NotFound`](crate::Reason::NotFound) if the VIF does not exist, and with [`Refused`](crate::Reason::Refused) if a group does
    /// not exist.
    async fn set_security_groups(
        &self,
        vif: &Vif,
        security_groups: &[SecurityGroupId],
    ) -> Result<(), DriverError>;

    /// Deletes those of `vifs` that carry the mark of this cluster and of no owner. Returns those that still exist, or may; one
    /// that does not exist counts as deleted.
    async fn delete_vifs(&self, vifs: &[Vif]) -> Vec<(VifId, DriverError)>;

    /// Lists all VIFs that carry the mark of this cluster and of no owner, those that pods use included. It changes nothing: the
    /// pool deletes incomplete ones that no pod uses.
    async fn list_vifs(&self) -> Result<PooledVifList, DriverError>;

    /// Returns `true` if `vif` is active as long as it exists, used by a pod or not, as subports of a trunk are. Such
    /// a VIF becomes active while pooled; any other one becomes active only after the pod's node has bound it.
    fn is_active_unbound(&self, vif: &Vif) -> bool;
}
