//! The events of the cluster that a VIF pool needs.

use async_trait::async_trait;

use crate::error::DriverError;
use crate::id::Uid;
use crate::owner::Owner;
use crate::vif::Vif;
use crate::vif_pool::NodeInfo;

/// Receives the events of the cluster that a VIF pool needs: the owner of a pooled VIF is recorded in the annotation of a pod only.
///
/// At startup, [`resync`](Self::resync) and [`pod_vifs`](Self::pod_vifs) for each pod of the initial list come first, then
/// [`start`](Self::start). Until then the pool hands out nothing. A VIF that exists by then and is in no pod's annotation is
/// free: an earlier process handed it out and ended before it wrote the annotation.
#[async_trait]
pub trait VifPoolObserver: Send + Sync {
    /// Lists the VIFs that exist. It is repeated with every garbage collection: VIFs that are missing by then were deleted from
    /// outside, and are not handed out.
    async fn resync(&self) -> Result<(), DriverError>;

    /// Records the VIFs in the annotation of a pod, on each of its events, in order. It runs within the watch and must not block.
    fn pod_vifs(&self, owner: &Owner, vifs: &[Vif]);

    /// Returns `true` if another pod listed one of the VIFs of this pod first. This is a
    /// fault, for example of two controllers that run at the same time: this pod gets another VIF.
    fn has_conflict(&self, uid: &Uid) -> bool;

    /// Starts the pool, after all existing pods and nodes were recorded. Further calls do nothing.
    fn start(&self);

    /// Records a node, or its deletion with `None`. It runs within the watch and must not block.
    fn node_changed(&self, name: &str, facts: Option<&NodeInfo>);
}
