//! The contract of VIF pools, which keep VIFs ready in front of a VIF driver: the traits of a pool, of the events that it needs, and of
//! the driver that creates its VIFs.

mod bulk;

use std::collections::HashSet;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;

use crate::error::DriverError;
use crate::id::{NetworkId, Owned, Owner, SecurityGroupId, Uid, VifId};
use crate::pod::{PodVifDriver, VifRequest};
use crate::vif::Vif;

pub use self::bulk::{BulkVifDriver, BulkVifRequest, BulkVifResult, PooledVif, PooledVifList, VifPoolKey};

/// A [`PodVifDriver`] that calls another one, and may create VIFs before they are requested.
///
/// The ownership mark of a pooled VIF names the cluster and no owner. The default methods are those of a pool that keeps no VIFs ready.
///
/// ```
/// use staffetta_driver::{DriverError, NetworkId, VifPoolDriver};
///
/// async fn before_deletion(pool: &dyn VifPoolDriver, network: &NetworkId) -> Result<(), DriverError> {
///     pool.drain_network(network).await
/// }
/// ```
#[async_trait]
pub trait VifPoolDriver: PodVifDriver {
    /// Returns `true` if the pool's own in-memory records contain the VIF, free or in use. Annotations of pods do not count,
    /// since others may change them.
    fn contains_vif(&self, vif: &VifId) -> bool {
        let _ = vif;
        false
    }

    /// Returns the claim of the pod `owner` to `vif`, which its annotation contains, according to the pool's in-memory records.
    fn claim(&self, owner: &Owner, vif: &Vif) -> PoolClaim {
        let _ = (owner, vif);
        PoolClaim::NotPooled
    }

    /// Returns `true` if the pod uses a VIF of the pool, according to the pool's in-memory records.
    fn holds_vifs(&self, pod: &Uid) -> bool {
        let _ = pod;
        false
    }

    /// Creates a VIF for an additional network of a pod. Nothing but its annotation and its ownership mark tells that the pod uses the VIF,
    /// because the status of the pod has the addresses of its default VIF alone. So the mark must name the pod: the VIF of a pool does not do.
    async fn request_additional_vif(&self, request: &VifRequest) -> Result<Vif, DriverError> {
        self.request_vif(request).await
    }

    /// Returns the name of the VIF driver for pods on the node; `None` if it is the same for all nodes.
    fn vif_driver_of_node(&self, node: &str) -> Option<String> {
        let _ = node;
        None
    }

    /// Notifies the pool that another component changes the security groups of a VIF. It is called before the change with `None`, because
    /// the groups are then unknown, and after a successful change with the new groups. Without this call, the next pod could get a VIF with
    /// the groups of the previous one.
    fn security_groups_changed(&self, vif: &VifId, security_groups: Option<&[SecurityGroupId]>) {
        let _ = (vif, security_groups);
    }

    /// Returns the receiver of the cluster events that the pool needs before it hands out VIFs; `None` if it needs none.
    fn observer(&self) -> Option<&dyn VifPoolObserver> {
        None
    }

    /// Deletes the VIFs in `network` that no pod uses, because the network will be deleted, and creates no more VIFs there until
    /// the next request for one. Fails with [`Conflict`](crate::Reason::Conflict) while VIFs in `network` are in use, being created or
    /// being deleted. The default does nothing.
    async fn drain_network(&self, network: &NetworkId) -> Result<(), DriverError> {
        let _ = network;
        Ok(())
    }
}

/// The claim of a pod to a VIF in its annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolClaim {
    /// The VIF does not belong to the pool.
    NotPooled,
    /// The pod uses the VIF: the pool handed it out to this pod, or the annotation or the addresses of the pod named it when the pool
    /// was started.
    Held,
    /// No other pod uses the VIF, but the annotation or the addresses of the pod name it only since after the start of the pool, or the
    /// pod is not known to be on the node of the VIF. Another process may have handed it out, or a user may have changed the annotation. The
    /// caller decides whether the claim is valid, by this key of the VIF.
    Late(VifPoolKey),
    /// Another pod uses the VIF, nothing tells which of several pods uses it, the pod runs with other addresses, the pool is about to delete
    /// the VIF, or its properties in the annotation are wrong.
    Refused,
}

/// Receives the cluster events that a VIF pool needs. The pool must know the annotations and the addresses of pods, because they are the
/// only records of the pod that uses a pooled VIF.
///
/// At startup, the caller first calls [`resync`](Self::resync), and [`pod_vifs`](Self::pod_vifs) for each existing pod, and then
/// [`start`](Self::start). Before `start` the pool hands out no VIFs. A VIF that exists at that time, and that no pod may use, is
/// free: a previous process may have handed it out and ended before it wrote the annotation.
#[async_trait]
pub trait VifPoolObserver: Send + Sync {
    /// Lists the VIFs that exist, compares the pool with them (a list from before [`start`](Self::start) is compared when that is
    /// called), and returns those with an owner, as [`PodVifDriver::vifs`] does, so that the caller need not list them again. It is
    /// repeated with every garbage collection. VIFs that are missing then were deleted by others, and are not handed out any more.
    async fn resync(&self) -> Result<Vec<Owned<Vif>>, DriverError>;

    /// Records the VIFs in the annotation of `pod`; `None` means that the pod got VIFs, and that its annotation does not tell any more which.
    /// It is called for each event of the pod, in order. It runs within the watch and must not block.
    ///
    /// While the pod lives, it also keeps the VIFs on its node that have its addresses and that no VIF in its annotation accounts for,
    /// and, as long as it has neither addresses nor VIFs that are known, all that are free on its node.
    ///
    /// Of several pods whose annotations contain the same VIF, one keeps it: the one to which the pool handed it out; otherwise the
    /// one whose annotation contained it at the start, then the one whose `status.podIP` is an address of the VIF, and then the
    /// oldest. [`claim`](VifPoolDriver::claim) is refused to the others.
    fn pod_vifs(&self, pod: &Pod, vifs: Option<&[Vif]>);

    /// Records that the pod with this UID was deleted, or that its containers have ended. VIFs that it got stay its own until they are
    /// released. It runs within the watch and must not block.
    fn pod_ended(&self, pod: &Uid);

    /// Lets the pool hand out VIFs from now on. It is called after all existing pods and nodes were recorded. Later calls do nothing.
    fn start(&self);

    /// Records that the node `name` has the properties `facts`, or that it was deleted if `facts` is `None`. It runs within the
    /// watch and must not block.
    fn node_changed(&self, name: &str, facts: Option<&NodeInfo>);
}

/// Reads which VIFs the annotations of pods contain. A pool needs that after a change of the leader: the last write of the process that led
/// before may take effect after this one has listed the pods, and its watch may show that much later.
#[async_trait]
pub trait PublishedVifs: Send + Sync {
    /// Returns the VIFs in the annotations of all pods that may still have a network. They are read from the API server, so that each write is
    /// seen that took effect before the call.
    async fn published_vifs(&self) -> Result<HashSet<VifId>, DriverError>;
}

/// The properties of a node that VIF pools need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeInfo {
    /// The IP addresses of the node.
    pub addresses: Vec<String>,
    /// The value of the node's label `pod_vif`, which is the name of the VIF driver of its pods; `None` without the label.
    pub pod_vif: Option<String>,
}
