//! The pool between the handler and the VIF driver, and the events of the cluster that it needs.

use async_trait::async_trait;

use crate::error::DriverError;
use crate::id::{NetworkId, SecurityGroupId, Uid, VifId};
use crate::owner::Owner;
use crate::pod::PodVifDriver;
use crate::vif::Vif;
use crate::vif_pool::NodeInfo;

/// A [`PodVifDriver`] in front of another one, which may keep VIFs ready before they are requested.
///
/// A pooled VIF is marked with the cluster and without an owner. [`NoopVifPool`](crate::NoopVifPool) keeps none, [`WarmVifPool`](crate::WarmVifPool) as many as its options say.
///
/// ```
/// use std::sync::Arc;
/// use staffetta_driver::{NoopVifPool, PodVifDriver, VifPoolDriver};
///
/// fn without_a_pool(vifs: Arc<dyn PodVifDriver>) -> Arc<dyn VifPoolDriver> {
///     Arc::new(NoopVifPool::new(vifs))
/// }
/// ```
#[async_trait]
pub trait VifPoolDriver: PodVifDriver {
    /// Returns `true` if the pool manages that VIF, free or in use, by its own records: not by the annotation of a pod.
    fn contains_vif(&self, vif: &VifId) -> bool {
        let _ = vif;
        false
    }

    /// Returns the name of the VIF driver of the node's pods, if that depends on the node.
    fn vif_driver_of_node(&self, node: &str) -> Option<String> {
        let _ = node;
        None
    }

    /// Notifies the pool that the security groups of a VIF are changed from outside: `None` before the attempt, after which its
    /// groups are unknown; the new groups after success. Otherwise the next pod would get a VIF with the groups of the last one.
    fn security_groups_changed(&self, vif: &VifId, security_groups: Option<&[SecurityGroupId]>) {
        let _ = (vif, security_groups);
    }

    /// The observer of cluster events that the pool needs before it hands out VIFs; `None` if it needs none.
    fn observer(&self) -> Option<&dyn VifPoolObserver> {
        None
    }

    /// Deletes the free VIFs in `network`, which is about to be deleted, and creates no more there until the next request. Fails
    /// with [`Conflict`](crate::Reason::Conflict) while VIFs are in use or being created.
    async fn drain_network(&self, network: &NetworkId) -> Result<(), DriverError> {
        let _ = network;
        Ok(())
    }
}

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
