//! What the wrappers ask of the thing they carry, so that they can carry more than Kubernetes events.

use std::any::TypeId;
use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};

/// Something that passes through the chain: a Kubernetes [event](crate::AnyEvent), a tunnel's heartbeat, a pool's wake-up.
pub trait Message: Clone + Send + Sync + 'static {
    /// What happened. A heartbeat is a `Modified`: a newer one may stand for an older one.
    fn change(&self) -> Change;

    /// Whether this is a deletion or the request for one. Such a message is never superseded: its retries end with
    /// success, the time limit or shutdown.
    fn finalizing(&self) -> bool {
        self.change() == Change::Deleted
    }

    /// Whom it is about, for people.
    fn subject(&self) -> Subject<'_>;

    /// Whom it is about, for machines: two messages with one UID are about one object.
    fn uid(&self) -> &str;

    /// The type by which the dispatcher finds its handlers.
    fn route(&self) -> TypeId;

    /// The same message as news of a new object; anything but a `Modified` stays as it is.
    #[must_use]
    fn into_added(self) -> Self;
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is new to this process.
    Added,
    /// It changed.
    Modified,
    /// It is gone.
    Deleted,
}

impl Change {
    /// All that can happen.
    pub const ALL: [Self; 3] = [Self::Added, Self::Modified, Self::Deleted];

    /// The change in one lower-case word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Modified => "modified",
            Self::Deleted => "deleted",
        }
    }
}

/// Whom a message is about, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject<'a> {
    /// The kind, as in the field `kind`.
    pub kind: Cow<'static, str>,
    /// The namespace; none for a cluster-scoped object.
    pub namespace: Option<&'a str>,
    /// The name.
    pub name: &'a str,
    /// The UID.
    pub uid: &'a str,
}

impl fmt::Display for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.kind)?;
        if let Some(namespace) = self.namespace {
            write!(f, "{namespace}/")?;
        }
        write!(f, "{} ({})", self.name, self.uid)
    }
}

/// What decides which messages are handled one after the other: those of one key, per handler.
///
/// It is a 64-bit digest. Should two keys ever share one, they share a queue: order is kept, concurrency is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderingKey(u64);

impl OrderingKey {
    /// The key of whatever `name` names: a UID, or a tuple such as `(namespace, name)`.
    pub fn of(name: impl Hash) -> Self {
        let mut digest = std::hash::DefaultHasher::new();
        name.hash(&mut digest);
        Self(digest.finish())
    }
}

impl Hash for OrderingKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0);
    }
}
