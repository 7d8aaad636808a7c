//! What stands between the handler and the VIF driver.

use async_trait::async_trait;

use crate::error::DriverError;
use crate::id::{NetworkId, SecurityGroupId, VifId};
use crate::owner::{Marked, Owner};
use crate::pod_vif::{Activation, VifRequest};
use crate::pool_ledger::PoolLedger;
use crate::vif::Vif;

/// Stands in front of a [`PodVifDriver`](crate::PodVifDriver), and may keep VIFs ready before they are asked for.
///
/// It gives the same guarantees, with one addition: a VIF that is kept for whoever comes is marked with the cluster and
/// without an owner. [`NoopPool`](crate::NoopPool) keeps none, [`PooledVifs`](crate::PooledVifs) as many as its options say.
///
/// ```
/// use std::sync::Arc;
/// use staffetta_driver::{NoopPool, PodVifDriver, VifPoolDriver};
///
/// fn without_a_pool(vifs: Arc<dyn PodVifDriver>) -> Arc<dyn VifPoolDriver> {
///     Arc::new(NoopPool::new(vifs))
/// }
/// ```
#[async_trait]
pub trait VifPoolDriver: Send + Sync {
    /// See [`PodVifDriver::request_vif`](crate::PodVifDriver::request_vif).
    async fn request_vif(&self, request: &VifRequest) -> Result<Vif, DriverError>;

    /// See [`PodVifDriver::release_vif`](crate::PodVifDriver::release_vif).
    async fn release_vif(&self, owner: &Owner, vif: &Vif) -> Result<(), DriverError>;

    /// See [`PodVifDriver::activate_vif`](crate::PodVifDriver::activate_vif).
    async fn activate_vif(&self, vif: &Vif) -> Result<Activation, DriverError>;

    /// See [`PodVifDriver::vifs`](crate::PodVifDriver::vifs).
    async fn vifs(&self, owner: Option<&Owner>) -> Result<Vec<Marked<Vif>>, DriverError>;

    /// Whether it keeps that VIF, be it handed out or not, by what it knows itself: not by what a pod shows.
    fn keeps(&self, vif: &VifId) -> bool {
        let _ = vif;
        false
    }

    /// The name of the VIF driver of the node's pods, where it is not the same for all nodes.
    fn vif_driver(&self, node: &str) -> Option<String> {
        let _ = node;
        None
    }

    /// Somebody puts other security groups in front of a VIF, whoever holds it: `None` before that is tried, for from then on
    /// nobody knows what guards it; just these groups once it is done. Who keeps VIFs for the next pod must know, or that pod
    /// would get a VIF with the groups of the last one.
    fn regrouped(&self, vif: &VifId, security_groups: Option<&[SecurityGroupId]>) {
        let _ = (vif, security_groups);
    }

    /// What it must be told of the cluster before it hands anything out; none when it need not be told.
    fn ledger(&self) -> Option<&dyn PoolLedger> {
        None
    }

    /// Destroys what it keeps in `network`, what cools down too, and keeps nothing there until somebody asks again: the network
    /// is about to be deleted. A [`Conflict`](crate::Reason::Conflict) when something is still in use or just being made.
    async fn vacate(&self, network: &NetworkId) -> Result<(), DriverError> {
        let _ = network;
        Ok(())
    }
}
