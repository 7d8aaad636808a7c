//! Events as the chain of one handler carries them.

use std::any::TypeId;
use std::fmt;

use crate::event::{AnyEvent, Change, Message, ObjectRef, OrderingKey};

/// An event with what one handler says of it. [`Registration::resolve`](crate::Registration::resolve) asks the handler once, when the event
/// arrives; later attempts use the same answers.
#[derive(Clone)]
pub struct Resolved {
    pub(super) event: AnyEvent,
    /// The position of the handler among the routes of the registration; `None` if there is none for this type of event.
    pub(super) route: Option<usize>,
    pub(super) key: OrderingKey,
    pub(super) group: Option<OrderingKey>,
}

impl Resolved {
    /// Returns the event itself.
    pub fn event(&self) -> &AnyEvent {
        &self.event
    }

    /// Returns the ordering key of the event: events with the same key are handled one after the other.
    pub fn key(&self) -> OrderingKey {
        self.key
    }

    /// Returns the group of the event, which has its own permits in [`Limit`](crate::Limit); `None` if the event uses the permits that all
    /// events without a group share.
    pub fn group(&self) -> Option<OrderingKey> {
        self.group
    }
}

impl Message for Resolved {
    fn change(&self) -> Change {
        self.event.change()
    }

    fn finalizing(&self) -> bool {
        self.event.finalizing()
    }

    fn is_trigger(&self) -> bool {
        self.event.is_trigger()
    }

    fn object_ref(&self) -> ObjectRef<'_> {
        self.event.object_ref()
    }

    fn uid(&self) -> &str {
        self.event.uid()
    }

    fn route(&self) -> TypeId {
        self.event.route()
    }

    fn replacing(self, older: &Self) -> Self {
        Self { event: self.event.replacing(&older.event), ..self }
    }
}

impl fmt::Debug for Resolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.event.fmt(f)
    }
}
