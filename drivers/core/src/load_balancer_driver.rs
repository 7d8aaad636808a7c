//! Makes, changes, finds and releases load balancers.

use std::sync::Arc;

use async_trait::async_trait;

use crate::error::DriverError;
use crate::id::{LoadBalancerId, PoolId};
use crate::load_balancer::{
    Feasible, Listener, ListenerSpec, LoadBalancer, LoadBalancerSpec, Member, MemberSpec, Progress,
};
use crate::namespace_observer::NamespaceObserver;
use crate::owner::{Marked, Owner};

/// Makes, changes, finds and releases the load balancers of services in one other world.
///
/// What every implementation guarantees:
///
/// * No method waits for anything but its own requests. A load balancer that takes no change at this moment is told by
///   [`Reason::Conflict`](crate::Reason::Conflict) with the time after which it is worth asking again
///   ([`DriverError::retry_after`]), and then nothing was changed; nobody counts that as a failure. So is an address that is
///   held by a load balancer that goes.
/// * Where the other side makes just so many load balancers at a time, one that is not begun for that reason is told by
///   [`Reason::Queued`](crate::Reason::Queued), with the time after which it is worth asking again. However long that lasts, it is
///   no failure either: the time for retries begins when its turn has come.
/// * A method that changes something answers what stands then, which may be less than was asked for where that takes
///   several changes. Whoever asked asks again for the rest, once [`progress`](Self::progress) says that the load balancer
///   takes it. A method that has nothing to change makes no request that would keep the load balancer busy.
/// * What stands of a load balancer of which only the port was made is told as one in the state
///   [`Error`](crate::Provisioning::Error) [that is a port alone](LoadBalancer::is_port_alone).
/// * What is answered is comparable with what is asked for: after [`feasible`](Self::feasible), equal means that nothing is to
///   be done.
/// * A load balancer carries the mark of this cluster and of its owner from its first moment, so that
///   [`load_balancers`](Self::load_balancers) finds it even when the answer got lost. What hangs on it needs no mark.
/// * Every method may be repeated: the result is the same, and nothing is made twice.
/// * An error that leaves open whether something happened says so ([`DriverError::ambiguous`]).
///
/// ```
/// use async_trait::async_trait;
/// use staffetta_driver::{
///     DriverError, Listener, ListenerSpec, LoadBalancer, LoadBalancerDriver, LoadBalancerId, LoadBalancerSpec, Marked,
///     Member, MemberSpec, Owner, PoolId, Progress, Reason,
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
///     async fn progress(&self, _: &LoadBalancer) -> Result<Progress, DriverError> {
///         Err(unsupported("look at a load balancer"))
///     }
///     async fn release_load_balancer(&self, _: &Owner, _: &LoadBalancerId) -> Result<(), DriverError> {
///         Ok(())
///     }
///     async fn ensure_listener(&self, _: &LoadBalancer, _: &ListenerSpec) -> Result<Listener, DriverError> {
///         Err(unsupported("make a listener"))
///     }
///     async fn release_listener(
///         &self,
///         _: &LoadBalancer,
///         _: &Listener,
///     ) -> Result<Option<Listener>, DriverError> {
///         Ok(None)
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
    /// Every load balancer that this cluster marked, or those marked for `owner`, each with its whole tree as it is now.
    /// All are read by a number of requests that does not grow with theirs, but for pages. One that is being deleted is
    /// none.
    async fn load_balancers(&self, owner: Option<&Owner>) -> Result<Vec<Marked<LoadBalancer>>, DriverError>;

    /// The spec as this driver would carry it out: what it leaves open gets the driver's own choice (the provider, the
    /// time-outs, the algorithm), members get the subnet through which they are reached, and what the other side has no
    /// such thing for is left out, and told. It changes nothing, costs next to nothing, and equal specs get equal answers.
    ///
    /// By default the spec as it is.
    async fn feasible(&self, spec: LoadBalancerSpec) -> Result<Feasible, DriverError> {
        Ok(Feasible { spec, without: Vec::new() })
    }

    /// Finds the load balancer that is marked for `owner`, or makes one with its whole tree and marks it, by one request
    /// where the other side can do that.
    ///
    /// One that is there gets the security groups of `spec`, is switched on if somebody switched it off, and nothing else.
    /// The answer is the whole tree that stands, and comes at once: the load balancer may still be [`Pending`](crate::Provisioning::Pending). Where the other side
    /// refuses the tree for something that hangs on the load balancer, that one is made without, so that each listener is
    /// refused, or not, by itself.
    async fn ensure_load_balancer(
        &self,
        owner: &Owner,
        spec: &LoadBalancerSpec,
    ) -> Result<LoadBalancer, DriverError>;

    /// How far the other side is with the last change. It answers at once: for all who wait for one, one request is made,
    /// and not more often than it is worth while. [`NotFound`](crate::Reason::NotFound) says that somebody removed the load
    /// balancer.
    async fn progress(&self, load_balancer: &LoadBalancer) -> Result<Progress, DriverError>;

    /// Releases a load balancer with all that hangs on it; it may take its time to go. One that does not exist is released
    /// already; one that is not marked for `owner` is left alone.
    async fn release_load_balancer(&self, owner: &Owner, id: &LoadBalancerId) -> Result<(), DriverError>;

    /// Makes the listener and its pool with its members, or what of them is missing, and gives both the settings of `spec`.
    /// The members of a pool that is there stay as they are. What stands of the listener is told by `load_balancer`.
    ///
    /// [`Reason::Unsupported`](crate::Reason::Unsupported) says that the other side has no such protocol; the handler then
    /// does without this listener.
    async fn ensure_listener(
        &self,
        load_balancer: &LoadBalancer,
        spec: &ListenerSpec,
    ) -> Result<Listener, DriverError>;

    /// Releases a pool with its members, then its listener, and answers what is left of it where that takes several changes.
    /// What does not exist is released already.
    async fn release_listener(
        &self,
        load_balancer: &LoadBalancer,
        listener: &Listener,
    ) -> Result<Option<Listener>, DriverError>;

    /// Makes `members` the members of the pool, all of them and nothing else, in one request; answers them.
    async fn set_members(
        &self,
        load_balancer: &LoadBalancer,
        pool: &PoolId,
        members: &[MemberSpec],
    ) -> Result<Vec<Member>, DriverError>;

    /// Who must learn of all namespaces before this driver is asked anything; nobody, unless it says otherwise.
    fn namespaces(&self) -> Option<Arc<dyn NamespaceObserver>> {
        None
    }
}
