//! What a pool must be told of the cluster: who uses what, and which nodes there are.

use async_trait::async_trait;

use crate::error::DriverError;
use crate::id::Uid;
use crate::nodes::NodeFacts;
use crate::owner::Owner;
use crate::vif::Vif;

/// What a pool must be told of the cluster, since the owner of a pooled VIF is the annotation of a pod alone.
///
/// In this order: [`read`](Self::read), and beside it [`shows`](Self::shows) for each pod of the first list; then
/// [`begin`](Self::begin). Until then the pool hands nothing out. A VIF that exists by then and that no pod shows belongs to
/// nobody: a dead process handed it out, and never wrote it down.
#[async_trait]
pub trait PoolLedger: Send + Sync {
    /// Reads what exists in the other world. It is called again with every sweep: what is missing by then was deleted
    /// outside, and is handed to nobody.
    async fn read(&self) -> Result<(), DriverError>;

    /// A pod shows these VIFs. It is told in the order in which that became known, as often as the pod changes; it is called
    /// within the watch, and never waits.
    fn shows(&self, owner: &Owner, vifs: &[Vif]);

    /// Whether another pod shows one of the VIFs that this pod shows, and did so first. Somebody made a mistake, such as to let
    /// two controllers work: this one is to have another VIF.
    fn contested(&self, uid: &Uid) -> bool;

    /// All pods and nodes that there are have been told. It may be called again, and costs nothing then.
    fn begin(&self);

    /// The node is there, and so; or it is gone. It is called within the watch, and never waits.
    fn node(&self, name: &str, facts: Option<&NodeFacts>);
}
