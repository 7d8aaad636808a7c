//! The driver of the load balancers of services.

use std::sync::Arc;

use async_trait::async_trait;

use crate::error::DriverError;
use crate::id::{LoadBalancerId, Owned, Owner};
use crate::load_balancer::{
    ListenerChange, LoadBalancer, LoadBalancerProgress, LoadBalancerSpec, NormalizedSpec,
};
use crate::namespace::NamespaceObserver;

/// Creates, changes, lists and releases the load balancers of services in one cloud.
///
/// Guarantees of every implementation:
///
/// * Every method waits only for its own requests. A load balancer that is busy with a change accepts no other one, and a load
///   balancer that is being deleted still holds its address. Then a call changes nothing and fails with
///   [`Reason::Conflict`](crate::Reason::Conflict) and the [delay](DriverError::retry_after) before it may be repeated, which
///   does not count as a failure of the service.
/// * If the cloud limits the number of load balancers that are created at the same time, a call beyond the limit fails with
///   [`Reason::Queued`](crate::Reason::Queued) and a delay. The caller repeats it without a time limit until it succeeds.
/// * A method returns the state after its change. If a change takes several requests that each keep the load balancer busy, this
///   may be only a part of the requested change. The caller repeats the call after [`progress`](Self::progress) reports that the
///   load balancer accepts changes. A method that has nothing to change makes no request that would keep the load balancer busy.
/// * If only the port of a load balancer was created, it is returned in the state [`Error`](crate::ProvisioningStatus::Error),
///   and [`is_port_alone`](LoadBalancer::is_port_alone) returns `true` for it.
/// * Returned states can be compared with a [normalized](Self::normalize) spec: if they are equal, nothing needs to be done.
/// * A load balancer carries an ownership mark from its creation: the id of this cluster, and the owner.
///   [`load_balancers`](Self::load_balancers) finds it by this mark even if the response was lost. Its listeners need no mark.
/// * Every method is idempotent.
/// * If a change may have taken effect despite an error, the error is [ambiguous](DriverError::ambiguous).
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
///         Err(unsupported("read the status of a load balancer"))
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
    /// Lists the load balancers that carry this cluster's ownership mark, with their listeners, pools and members; with an `owner`,
    /// only those that are marked for it. Load balancers that are being deleted are omitted. The number of requests does not
    /// depend on the number of load balancers, except for pagination.
    async fn load_balancers(&self, owner: Option<&Owner>) -> Result<Vec<Owned<LoadBalancer>>, DriverError>;

    /// Adds the defaults of the driver (provider, timeouts, algorithm) and the subnets of members to `spec`, and removes the
    /// parts that the cloud does not support. It is cheap and changes nothing in the cloud. Equal specs have equal results. The
    /// default implementation returns `spec` unchanged.
    async fn normalize(&self, spec: LoadBalancerSpec) -> Result<NormalizedSpec, DriverError> {
        Ok(NormalizedSpec { spec, without: Vec::new() })
    }

    /// Returns the load balancer of `owner`, or creates it with its listeners, pools and members, by one request if possible.
    ///
    /// An existing load balancer is enabled and gets the security groups of `spec`; nothing else of it changes. The method does
    /// not wait until the load balancer is ready: its state may be [`Pending`](crate::ProvisioningStatus::Pending). If the cloud
    /// rejects the creation because of a listener, the load balancer is created without listeners, so that each of them is
    /// accepted or rejected individually later.
    async fn ensure_load_balancer(
        &self,
        owner: &Owner,
        spec: &LoadBalancerSpec,
    ) -> Result<LoadBalancer, DriverError>;

    /// Returns the progress of the last change of `load_balancer`, without waiting for its end. All callers share the status requests,
    /// whose rate is limited. [`NotFound`](crate::Reason::NotFound) means that the load balancer does not exist any more.
    async fn progress(&self, load_balancer: &LoadBalancer) -> Result<LoadBalancerProgress, DriverError>;

    /// Releases a load balancer with its listeners, pools and members, without waiting for the end of the deletion. A load
    /// balancer that does not exist counts as released. A load balancer that is not marked for `owner` is not changed.
    async fn release_load_balancer(&self, owner: &Owner, id: &LoadBalancerId) -> Result<(), DriverError>;

    /// Returns the observer to which the handler passes all namespaces before the first call of this driver, and then every change;
    /// `None`, the default, if the driver needs none.
    fn namespaces(&self) -> Option<Arc<dyn NamespaceObserver>> {
        None
    }
}

/// Changes the listeners of load balancers. The guarantees of [`LoadBalancerDriver`] apply.
#[async_trait]
pub trait ListenerDriver: Send + Sync {
    /// Makes `change`, which concerns one listener with its pool and members, and returns the load balancer after the change.
    ///
    /// `load_balancer` is the last observed state. If the change takes several requests that each keep the load balancer busy,
    /// only the first request is made. The returned state then lacks a part of the change, and the caller repeats the call until
    /// nothing is missing. [`Reason::Unsupported`](crate::Reason::Unsupported) means that the cloud does not support the protocol
    /// of the listener; the handler then omits this listener.
    async fn change_listener(
        &self,
        load_balancer: &LoadBalancer,
        change: &ListenerChange,
    ) -> Result<LoadBalancer, DriverError>;
}
