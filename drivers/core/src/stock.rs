//! What a pool needs of a VIF driver: VIFs that are made in bulk, for nobody yet.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::error::DriverError;
use crate::id::{NetworkId, ProjectId, SecurityGroupId, SubnetId, VifId};
use crate::network::Subnet;
use crate::pod_vif::VifRequest;
use crate::vif::Vif;

/// What VIFs in stock have in common: any two with the same key can stand in for each other, once their security groups
/// are the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StockKey {
    /// The node: its name, or one of its addresses. Whichever it is, the stock's own list tells the same.
    pub host: String,
    /// The project.
    pub project: ProjectId,
    /// The network.
    pub network: NetworkId,
    /// The subnets in which it has an address each, sorted.
    pub subnets: Vec<SubnetId>,
}

impl StockKey {
    /// The key of VIFs that answer `request` on `host`.
    pub fn new(host: impl Into<String>, request: &VifRequest) -> Self {
        let mut subnets: Vec<_> = request.subnets.iter().map(|subnet| subnet.id.clone()).collect();
        subnets.sort_unstable();
        let network = request.subnets.first().map(|subnet| subnet.network.id.clone()).unwrap_or_default();
        Self { host: host.into(), project: request.project.clone(), network, subnets }
    }
}

/// VIFs that are to be made, all alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StockOrder {
    /// What they have in common.
    pub key: StockKey,
    /// The subnets of the key, with all that a VIF tells of them.
    pub subnets: Vec<Subnet>,
    /// The security groups.
    pub security_groups: Vec<SecurityGroupId>,
    /// How many, 1 or more.
    pub count: usize,
}

/// What came of a [`StockOrder`]. Fewer than were ordered is no error, and may be all that one call can make.
#[derive(Clone, Debug, Default)]
pub struct StockMade {
    /// The VIFs that were made.
    pub vifs: Vec<Vif>,
    /// Why there are not more. When it is [ambiguous](DriverError::ambiguous), there may be more, which the list tells.
    pub failure: Option<DriverError>,
}

/// A VIF that carries the mark of this cluster and of no owner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stocked {
    /// What it has in common with others.
    pub key: StockKey,
    /// Its security groups, in any order; none when it has just those of one that was ordered without any.
    pub security_groups: Vec<SecurityGroupId>,
    /// The VIF as it is now.
    pub vif: Vif,
}

/// What a stock has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StockList {
    /// The VIFs that can be handed out, and those that pods use.
    pub whole: Vec<Stocked>,
    /// VIFs without the binding, the address or the VLAN that they need, which nobody is making any more. Most were left behind
    /// by a call that was interrupted; one that is mended at this moment looks the same, and so does one that a pod uses and
    /// that lost what it had.
    pub halves: Vec<Stocked>,
}

/// Makes, changes, lists and destroys VIFs that no pod owns yet, in one other world.
///
/// A VIF in stock carries the mark of this cluster and none of an owner, from its first moment and for as long as it is
/// there: who uses it is told by the annotation of a pod alone, and known by the pool. Nobody but the pool calls these
/// methods; it never lets two calls change one VIF at a time.
///
/// What every implementation guarantees:
///
/// * No method waits for anything but its own requests, and each ends within a time of its own choice.
/// * What [`make`](Self::make) did not tell of and did not call ambiguous does not exist.
/// * A failure is typed: [`Quota`](crate::Reason::Quota) and [`NoAddress`](crate::Reason::NoAddress) when there is no more to
///   be had, [`Unavailable`](crate::Reason::Unavailable) when the other side is in trouble or wants to be left alone, with
///   [`retry_after`](DriverError::retry_after) where it says for how long.
///
/// ```
/// use async_trait::async_trait;
/// use staffetta_driver::{
///     DriverError, Reason, SecurityGroupId, StockList, StockMade, StockOrder, Vif, VifId, VifRequest, VifStock,
/// };
///
/// /// A world in which nothing can be made.
/// struct Barren;
///
/// #[async_trait]
/// impl VifStock for Barren {
///     fn host(&self, request: &VifRequest) -> Result<String, DriverError> {
///         Ok(request.node_name.clone())
///     }
///     async fn make(&self, _: &StockOrder) -> StockMade {
///         StockMade { vifs: Vec::new(), failure: Some(DriverError::new(Reason::Quota, "make ports")) }
///     }
///     async fn adapt(&self, _: &Vif, _: &[SecurityGroupId]) -> Result<(), DriverError> {
///         Err(DriverError::new(Reason::NotFound, "change a port"))
///     }
///     async fn destroy(&self, _: &[Vif]) -> Vec<(VifId, DriverError)> {
///         Vec::new()
///     }
///     async fn list(&self) -> Result<StockList, DriverError> {
///         Ok(StockList::default())
///     }
///     fn is_active_unbound(&self, _: &Vif) -> bool {
///         false
///     }
/// }
/// ```
#[async_trait]
pub trait VifStock: Send + Sync {
    /// The host in the key of VIFs that answer `request`: the name of the node, or the address by which the other world
    /// knows it. An error when the request does not tell it yet.
    fn host(&self, request: &VifRequest) -> Result<String, DriverError>;

    /// Makes VIFs, as many as ordered where one call can, with as few calls as possible. When it made some and nothing failed, it
    /// is asked for the rest at once.
    async fn make(&self, order: &StockOrder) -> StockMade;

    /// Gives `vif` these security groups instead of those that it has; without any, those of one that is ordered so. [`NotFound`](crate::Reason::NotFound) says that the
    /// VIF does not exist; a group that does not exist is [`Refused`](crate::Reason::Refused).
    async fn adapt(&self, vif: &Vif, security_groups: &[SecurityGroupId]) -> Result<(), DriverError>;

    /// Destroys all of these that carry the mark of this cluster and of no owner. Answers those that are still there, or
    /// may be; one that does not exist is destroyed.
    async fn destroy(&self, vifs: &[Vif]) -> Vec<(VifId, DriverError)>;

    /// All that carry the mark of this cluster and of no owner, those that pods use too. It changes nothing: who knows what
    /// pods use sees to the end of what is half made. An error when it cannot be seen which are whole.
    async fn list(&self) -> Result<StockList, DriverError>;

    /// A pod gave `vif` back. What was seen of it until then says nothing of the next pod's. It is called within a decision of
    /// the pool, and never waits.
    fn came_back(&self, vif: &VifId) {
        let _ = vif;
    }

    /// Whether `vif` lets packets pass as long as it exists, whether a pod uses it or not, as subports of a trunk do. Such
    /// a one becomes active in stock and stays so; any other becomes active only when the pod's node has bound it.
    fn is_active_unbound(&self, vif: &Vif) -> bool;
}
