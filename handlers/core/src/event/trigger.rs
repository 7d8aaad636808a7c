//! Triggers: requests, not from a watch of Kubernetes, to reconcile an object.

use std::any::Any;

use super::object::Identity;

/// A request, not from a watch of Kubernetes, to reconcile an object: for example because a device reported a change, drift was detected,
/// or a deadline passed.
///
/// A trigger carries no state: the handler reads the current state itself. Therefore a newer trigger can replace an older one of the
/// same type. A trigger travels as an [`AnyEvent`](crate::AnyEvent) through the same chain as the events of objects, from a
/// [`Source`](crate::Source) to each handler registered for it ([`Registration::on_trigger`](crate::Registration::on_trigger)).
pub trait Trigger: Any + Send + Sync + 'static {
    /// Returns the identity of the object to reconcile. Kubernetes Events about this trigger are created on that object, too. Two
    /// triggers with the same UID concern the same object.
    fn identity(&self) -> &Identity;
}
