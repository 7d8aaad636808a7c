//! Messages and handlers by which the unit tests and the integration tests of this crate test the wrappers of the chain.

use std::any::TypeId;
use std::fmt;

use staffetta_handler::{Action, Change, Context, EventHandler, HandlerError, Message, ObjectRef};

/// A message about an object with a given UID, for tests of the wrappers of the chain. The object with the UID `shop/a` is in the
/// namespace `shop`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TestMessage {
    uid: String,
    change: Change,
    form: Form,
    /// A number by which a test distinguishes messages about the same object. `Async`, `Retry` and `LogExceptions` ignore it.
    pub(crate) version: u64,
}

/// The origin and state of a [`TestMessage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// A watch event with the state of the object.
    Watched,
    /// A watch event of an object whose deletion was requested.
    Finalizing,
    /// A deletion without the last state of the object.
    Missed,
    /// A trigger.
    Trigger,
}

impl TestMessage {
    fn new(uid: &str, change: Change, form: Form, version: u64) -> Self {
        Self { uid: uid.to_owned(), change, form, version }
    }

    /// Returns an `Added` message of version 0.
    pub(crate) fn added(uid: &str) -> Self {
        Self::new(uid, Change::Added, Form::Watched, 0)
    }

    /// Returns a `Modified` message.
    pub(crate) fn modified(uid: &str, version: u64) -> Self {
        Self::new(uid, Change::Modified, Form::Watched, version)
    }

    /// Returns a `Modified` message of an object whose deletion was requested.
    pub(crate) fn terminating(uid: &str, version: u64) -> Self {
        Self::new(uid, Change::Modified, Form::Finalizing, version)
    }

    /// Returns a trigger about the object with this UID.
    pub(crate) fn trigger(uid: &str, version: u64) -> Self {
        Self::new(uid, Change::Modified, Form::Trigger, version)
    }

    /// Returns a `Deleted` message of version 0.
    pub(crate) fn deleted(uid: &str) -> Self {
        Self::new(uid, Change::Deleted, Form::Watched, 0)
    }

    /// Returns a `Deleted` message of version 0 without the last state of the object, as garbage collection sends it.
    #[allow(dead_code, reason = "only unit tests need it")]
    pub(crate) fn missed(uid: &str) -> Self {
        Self::new(uid, Change::Deleted, Form::Missed, 0)
    }
}

/// The [route](Message::route) of [`TestMessage`]s that are triggers.
struct Triggered;

impl Message for TestMessage {
    fn change(&self) -> Change {
        self.change
    }

    fn object_ref(&self) -> ObjectRef<'_> {
        let namespace = self.uid.split_once('/').map(|(namespace, _)| namespace);
        ObjectRef { kind: "Test".into(), namespace, name: &self.uid, uid: &self.uid }
    }

    fn route(&self) -> TypeId {
        if self.is_trigger() { TypeId::of::<Triggered>() } else { TypeId::of::<Self>() }
    }

    fn finalizing(&self) -> bool {
        self.change == Change::Deleted || self.form == Form::Finalizing
    }

    fn is_trigger(&self) -> bool {
        self.form == Form::Trigger
    }

    fn replacing(mut self, older: &Self) -> Self {
        if self.change == Change::Modified && older.change == Change::Added {
            self.change = Change::Added;
        } else if self.form == Form::Missed && older.change == Change::Deleted {
            self.form = older.form;
        }
        self
    }
}

impl fmt::Display for TestMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let change = match self.change {
            Change::Added => "added",
            Change::Modified if self.is_trigger() => "trigger",
            Change::Modified => "modified",
            Change::Deleted => "deleted",
        };
        write!(f, "{} {change} {}", self.uid, self.version)
    }
}

/// A handler that calls a closure.
pub(crate) struct HandlerFn<F>(pub(crate) F);

impl<E: Message, F> EventHandler<E> for HandlerFn<F>
where
    F: Fn(&E) -> Result<(), HandlerError> + Send + Sync + 'static,
{
    async fn handle(&self, event: &E, _: &Context<'_>) -> Result<Action, HandlerError> {
        (self.0)(event).map(|()| Action::done())
    }
}
