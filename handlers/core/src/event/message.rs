//! The messages that the chain carries.

use std::any::TypeId;
use std::borrow::Cow;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::LazyLock;

/// A message of the chain: an [event](crate::AnyEvent) of a Kubernetes object, or a [trigger](crate::Trigger) about one.
pub trait Message: Send + Sync + 'static {
    /// The change of the object. That of a trigger is `Modified`: a newer one can replace an older one.
    fn change(&self) -> Change;

    /// Returns `true` for a deletion or the request for one. Such a message is never superseded: its retries end with success,
    /// the time limit or shutdown.
    fn finalizing(&self) -> bool {
        self.change() == Change::Deleted
    }

    /// Returns `true` for a message that does not come from a watch: it replaces and supersedes only messages of its own type.
    fn is_trigger(&self) -> bool {
        false
    }

    /// The object, for log lines.
    fn object_ref(&self) -> ObjectRef<'_>;

    /// The UID of the object: two messages with one UID are about one object.
    fn uid(&self) -> &str;

    /// The type by which the dispatcher finds the handlers.
    fn route(&self) -> TypeId;

    /// Turns a `Modified` into an `Added`; other messages stay as they are.
    #[must_use]
    fn into_added(self) -> Self
    where
        Self: Sized;
}

/// A change of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is new to this process.
    Added,
    /// It changed.
    Modified,
    /// It was deleted.
    Deleted,
}

impl Change {
    /// All changes.
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

/// The names of an object, for log lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectRef<'a> {
    /// The kind, as in the field `kind`.
    pub kind: Cow<'static, str>,
    /// The namespace; `None` for a cluster-scoped object.
    pub namespace: Option<&'a str>,
    /// The name.
    pub name: &'a str,
    /// The UID.
    pub uid: &'a str,
}

impl fmt::Display for ObjectRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.kind)?;
        if let Some(namespace) = self.namespace {
            write!(f, "{namespace}/")?;
        }
        write!(f, "{} ({})", self.name, self.uid)
    }
}

/// The key of an ordered queue: a handler gets the messages of one key one after the other.
///
/// It is a 64-bit hash. Two names with the same hash share a queue: their order is kept, but they do not run concurrently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OrderingKey(u64);

impl OrderingKey {
    /// The key of `name`: a UID, or a tuple such as `(namespace, name)`. It differs from process to process, so that nobody can choose
    /// names that share a queue.
    pub fn of(name: impl Hash) -> Self {
        static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        Self(SEED.hash_one(name))
    }
}

/// Hashes an [`OrderingKey`] as itself, because it is a hash already.
#[derive(Default)]
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("an ordering key is one integer");
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}
