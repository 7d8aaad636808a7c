//! Indexes of other objects, for handlers that need more than the object of the event.

use crate::event::{Event, Object};

/// An index (cache) with fields of all objects of a kind, for a handler that needs them while it processes another object.
///
/// The events of the watch are applied to the index before they are queued for handlers, and the index is complete before its handler
/// gets the first event. `apply` runs within the watch, so it must be short and must not block.
pub trait Index<K: Object>: Send + Sync + 'static {
    /// Updates the index with an event.
    fn apply(&self, event: &Event<K>);
}
