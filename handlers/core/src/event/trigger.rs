//! Triggers: reasons to reconcile an object that do not come from a watch.

use std::any::Any;

use super::object::Identity;

/// A reason to reconcile an object that does not come from a watch: a device report, detected drift, a deadline.
///
/// It carries no state; the handler reads that where it keeps it, so a newer trigger can replace an older one of the same
/// type. It travels as an [`AnyEvent`](crate::AnyEvent) through the same chain as the events of objects, from a
/// [`Source`](crate::Source) to each handler registered for it ([`Registration::on_trigger`](crate::Registration::on_trigger)).
pub trait Trigger: Any + Send + Sync + 'static {
    /// The object, also of a Kubernetes Event about this trigger. Two triggers with one UID are about one object.
    fn identity(&self) -> &Identity;
}
