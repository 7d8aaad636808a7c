//! The driver of load balancers.

use std::sync::Arc;

use async_trait::async_trait;

use crate::error::DriverError;
use crate::id::LoadBalancerId;
use crate::load_balancer::{
    ListenerChange, LoadBalancer, LoadBalancerProgress, LoadBalancerSpec, NormalizedSpec,
};
use crate::namespace::NamespaceObserver;
use crate::owner::{Owned, Owner};

/// Creates, changes, lists and releases the load balancers of services in one cloud.
///
/// Guarantees of every implementation:
///
/// * Every method waits for its own requests only. While a load balancer takes no change, or an address is held by a load
///   balancer that is being deleted, a call changes nothing and fails with [`Reason::Conflict`](crate::Reason::Conflict) and the
///   [delay](DriverError::retry_after) before it may be repeated. This is no failure of the object.
/// * If the cloud bounds the number of load balancers that are created at a time, a call beyond it fails with
///   [`Reason::Queued`](crate::Reason::Queued) and a delay. Retries are not limited in time until its turn comes.
/// * A method returns the state after its change, which may be less than requested where that takes several requests. The
///   caller repeats it after [`progress`](Self::progress) reports that the load balancer takes changes. A method without
///   anything to change makes no request that would keep the load balancer busy.
/// * A load balancer of which only the port was created is returned in the state
///   [`Error`](crate::ProvisioningStatus::Error), as [a port alone](LoadBalancer::is_port_alone).
/// * Returned states are comparable with a spec that was [normalized](Self::normalize): equal means that nothing is to do.
/// * A load balancer carries the mark of this cluster and of its owner from its creation, so that
///   [`load_balancers`](Self::load_balancers) finds it even if the answer was lost. Its listeners need no mark.
/// * Every method is idempotent.
/// * An error after which the change may have taken effect is [ambiguous](DriverError::ambiguous).
///
/// ```
/// use async_trait::async_trait;
/// use staffetta_driver::{
///     DriverError, ListenerChange, ListenerDriver, LoadBalancer, LoadBalancerDriver, LoadBalancerId, LoadBalancerProgress,
///     LoadBalancerSpec, Owned, Owner, Reason,
/// };
///
/// /// A cloud without load balancers.
/// struct Nowhere;
///
/// fn unsupported(step: &'static str) -> DriverError {
///     DriverError::new(Reason::Unsupported, step)
/// }
///
/// #[async_trait]
/// impl LoadBalancerDriver for Nowhere {
///     async fn load_balancers(&self, _: Option<&Owner>) -> Result<Vec<Owned<LoadBalancer>>, DriverError> {
///         Ok(Vec::new())
///     }
///     async fn ensure_load_balancer(
///         &self,
///         owner: &Owner,
///         _: &LoadBalancerSpec,
///     ) -> Result<LoadBalancer, DriverError> {
///         Err(unsupported("make a load balancer").detail(owner.to_string()))
///     }
///     async fn progress(&self, _: &LoadBalancer) -> Result<LoadBalancerProgress, DriverError> {
///         Err(unsupported("look at a load balancer"))
///     }
///     async fn release_load_balancer(&self, _: &Owner, _: &LoadBalancerId) -> Result<(), DriverError> {
///         Ok(())
///     }
/// }
///
/// #[async_trait]
/// impl ListenerDriver for Nowhere {
///     async fn change_listener(
///         &self,
///         _: &LoadBalancer,
///         _: &ListenerChange,
///     ) -> Result<LoadBalancer, DriverError> {
///         Err(unsupported("change a listener"))
///     }
/// }
/// ```
#[async_trait]
pub trait LoadBalancerDriver: ListenerDriver {
    /// Lists the load balancers with the mark of this cluster, or those of `owner` only, each with its listeners, pools and
    /// members. The number of requests does not depend on their number, except for pages. One that is being deleted is omitted.
    async fn load_balancers(&self, owner: Option<&Owner>) -> Result<Vec<Owned<LoadBalancer>>, DriverError>;

    /// Fills in the driver's defaults (provider, timeouts, algorithm) and the subnets of members, and drops what the cloud does
    /// not support. It is cheap and changes nothing; equal specs have equal results. The default returns the spec as it is.
    async fn normalize(&self, spec: LoadBalancerSpec) -> Result<NormalizedSpec, DriverError> {
        Ok(NormalizedSpec { spec, without: Vec::new() })
    }

    /// Returns the load balancer of `owner`, or creates it with its listeners, pools and members, by one request if possible.
    ///
    /// An existing one gets the security groups of `spec` and is enabled; nothing else of it changes. It returns at once: the
    /// load balancer may still be [`Pending`](crate::ProvisioningStatus::Pending). If the cloud rejects the request because of a
    /// listener, the load balancer is created without listeners, so that each is accepted or rejected by itself.
    async fn ensure_load_balancer(
        &self,
        owner: &Owner,
        spec: &LoadBalancerSpec,
    ) -> Result<LoadBalancer, DriverError>;

    /// Reports the progress of the last change. It returns at once: all callers that wait for one share a
    /// request, at a bounded rate. [`NotFound`](crate::Reason::NotFound) means that the load balancer was removed.
    async fn progress(&self, load_balancer: &LoadBalancer) -> Result<LoadBalancerProgress, DriverError>;

    /// Releases a load balancer with its listeners, pools and members; the deletion may take time. One that does not exist
    /// counts as released; one that is not marked for `owner` is left alone.
    async fn release_load_balancer(&self, owner: &Owner, id: &LoadBalancerId) -> Result<(), DriverError>;

    /// The observer that must receive all namespaces before the first call of this driver; `None` by default.
    fn namespaces(&self) -> Option<Arc<dyn NamespaceObserver>> {
        None
    }
}

/// Changes the listeners of load balancers. The guarantees of [`LoadBalancerDriver`] apply.
#[async_trait]
pub trait ListenerDriver: Send + Sync {
    /// Makes a change of one listener, with its pool and members, and returns the load balancer after it.
    ///
    /// `load_balancer` is the load balancer as it was last observed. If the change takes several requests that each keep the load
    /// balancer busy, only the first one is made, and the returned load balancer differs from the change until the caller has
    /// repeated it often enough. [`Reason::Unsupported`](crate::Reason::Unsupported) means that the cloud does not support the
    /// protocol of the listener; the handler then omits this listener.
    async fn change_listener(
        &self,
        load_balancer: &LoadBalancer,
        change: &ListenerChange,
    ) -> Result<LoadBalancer, DriverError>;
}
