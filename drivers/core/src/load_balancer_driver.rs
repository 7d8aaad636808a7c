//! Makes, changes, finds and releases load balancers.

use async_trait::async_trait;

use crate::error::DriverError;
use crate::id::{LoadBalancerId, PoolId};
use crate::load_balancer::{Listener, ListenerSpec, LoadBalancer, LoadBalancerSpec, Member, MemberSpec};
use crate::owner::{Marked, Owner};

/// Makes, changes, finds and releases the load balancers of services in one other world.
///
/// What every implementation guarantees:
///
/// * No method waits for anything but its own requests. A load balancer that takes no change at this moment is told by a
///   transient error that says when to ask again ([`DriverError::retry_after`]), and then nothing was changed.
/// * A load balancer carries the mark of this cluster and of its owner from its first moment, so that
///   [`load_balancers`](Self::load_balancers) finds it even when the answer got lost. What hangs on it needs no mark.
/// * Every method may be repeated: the result is the same, and nothing is made twice.
/// * An error that leaves open whether something happened says so ([`DriverError::ambiguous`]).
///
/// ```
/// use async_trait::async_trait;
/// use staffetta_driver::{
///     DriverError, Listener, ListenerSpec, LoadBalancer, LoadBalancerDriver, LoadBalancerId, LoadBalancerSpec, Marked,
///     Member, MemberSpec, Owner, PoolId, Reason,
/// };
///
/// /// A world without load balancers.
/// struct Nowhere;
///
/// fn unsupported(step: &'static str) -> DriverError {
///     DriverError::new(Reason::Unsupported, step)
/// }
///
/// #[async_trait]
/// impl LoadBalancerDriver for Nowhere {
///     async fn load_balancers(&self, _: Option<&Owner>) -> Result<Vec<Marked<LoadBalancer>>, DriverError> {
///         Ok(Vec::new())
///     }
///     async fn ensure_load_balancer(
///         &self,
///         owner: &Owner,
///         _: &LoadBalancerSpec,
///     ) -> Result<LoadBalancer, DriverError> {
///         Err(unsupported("make a load balancer").detail(owner.to_string()))
///     }
///     async fn release_load_balancer(&self, _: &Owner, _: &LoadBalancerId) -> Result<(), DriverError> {
///         Ok(())
///     }
///     async fn ensure_listener(&self, _: &LoadBalancer, _: ListenerSpec) -> Result<Listener, DriverError> {
///         Err(unsupported("make a listener"))
///     }
///     async fn release_listener(&self, _: &LoadBalancer, _: &Listener) -> Result<(), DriverError> {
///         Ok(())
///     }
///     async fn set_members(
///         &self,
///         _: &LoadBalancer,
///         _: &PoolId,
///         _: &[MemberSpec],
///     ) -> Result<Vec<Member>, DriverError> {
///         Err(unsupported("set the members of a pool"))
///     }
/// }
/// ```
#[async_trait]
pub trait LoadBalancerDriver: Send + Sync {
    /// Every load balancer that this cluster marked, or those marked for `owner`, each with its whole tree.
    async fn load_balancers(&self, owner: Option<&Owner>) -> Result<Vec<Marked<LoadBalancer>>, DriverError>;

    /// Finds the load balancer that is marked for `owner`, or makes one and marks it. One that is there gets the security
    /// groups of `spec`. The answer is the whole tree and comes at once: the load balancer may still be
    /// [`Pending`](crate::Provisioning::Pending).
    async fn ensure_load_balancer(
        &self,
        owner: &Owner,
        spec: &LoadBalancerSpec,
    ) -> Result<LoadBalancer, DriverError>;

    /// Releases a load balancer with all that hangs on it. One that does not exist is released already; one that is not
    /// marked for `owner` is left alone.
    async fn release_load_balancer(&self, owner: &Owner, id: &LoadBalancerId) -> Result<(), DriverError>;

    /// Makes the listener and its pool, or what of them is missing, and answers both.
    ///
    /// [`Reason::Unsupported`](crate::Reason::Unsupported) says that the other side has no such protocol; the handler then
    /// does without this listener.
    async fn ensure_listener(
        &self,
        load_balancer: &LoadBalancer,
        at: ListenerSpec,
    ) -> Result<Listener, DriverError>;

    /// Releases a pool with its members, then its listener. What does not exist is released already.
    async fn release_listener(
        &self,
        load_balancer: &LoadBalancer,
        listener: &Listener,
    ) -> Result<(), DriverError>;

    /// Makes `members` the members of the pool, all of them and nothing else, in one request; answers them.
    async fn set_members(
        &self,
        load_balancer: &LoadBalancer,
        pool: &PoolId,
        members: &[MemberSpec],
    ) -> Result<Vec<Member>, DriverError>;
}
