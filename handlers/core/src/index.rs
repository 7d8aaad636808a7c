//! Small indexes of other objects, for handlers that need more than the event in hand.

use kube::Resource;

use crate::event::Event;

/// Keeps just those fields of a kind that a handler needs besides the event that it handles.
///
/// It is fed by the one watch of that kind, before the event is queued anywhere, and it is complete before its handler
/// gets its first event. `apply` runs in the watch itself: it must be short and must not block.
pub trait Index<K>: Send + Sync + 'static
where
    K: Resource<DynamicType = ()> + Send + Sync + 'static,
{
    /// Takes in what happened.
    fn apply(&self, event: &Event<K>);
}
