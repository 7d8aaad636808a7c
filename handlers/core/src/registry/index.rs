//! Indexes of other objects, for handlers that need more than the event itself.

use kube::Resource;

use crate::event::Event;

/// Keeps the fields of a kind that a handler needs besides its own event.
///
/// It is fed by the one watch of that kind, before the event is queued, and is complete before its handler gets its first event.
/// `apply` runs within the watch: it must be short and must not block.
pub trait Index<K>: Send + Sync + 'static
where
    K: Resource<DynamicType = ()> + Send + Sync + 'static,
{
    /// Applies an event.
    fn apply(&self, event: &Event<K>);
}
