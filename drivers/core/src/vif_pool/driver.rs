//! The pool between the handler and the VIF driver.

use async_trait::async_trait;

use crate::error::DriverError;
use crate::id::{NetworkId, SecurityGroupId, VifId};
use crate::pod::PodVifDriver;
use crate::vif_pool::VifPoolObserver;

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
