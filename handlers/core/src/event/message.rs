//! The messages that the chain carries.

use std::any::TypeId;
use std::borrow::Cow;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::LazyLock;

/// A message of the chain: an [event](crate::AnyEvent) of a Kubernetes object, or a [trigger](crate::Trigger) about one.
pub trait Message: Send + Sync + 'static {
    /// Returns the change of the object. For a trigger this is `Modified`, because a newer trigger can replace an older one.
    fn change(&self) -> Change;

    /// Returns `true` if the object was deleted or its deletion was requested (`deletionTimestamp` is set). No newer message ends the
    /// retries of such a message: they end with a success or a permanent failure, at the time limit or at shutdown.
    fn finalizing(&self) -> bool;

    /// Returns `true` for a trigger, that is, a message that does not come from a watch. A trigger replaces and supersedes only
    /// triggers of its own type.
    fn is_trigger(&self) -> bool;

    /// Returns the kind, names and UID of the object, for log lines.
    fn object_ref(&self) -> ObjectRef<'_>;

    /// Returns the UID of the object. Two messages with the same UID concern the same object.
    fn uid(&self) -> &str {
        self.object_ref().uid
    }

    /// Returns the Rust type of the object or trigger, by which the dispatcher finds the handlers.
    fn route(&self) -> TypeId;

    /// Returns the message that takes the place of `older`, an earlier message of the same object that was not handled. A `Modified`
    /// in place of an `Added` becomes an `Added`. A deletion without the last state of the object takes it from an earlier deletion.
    #[must_use]
    fn replacing(self, older: &Self) -> Self
    where
        Self: Sized;
}

/// A change of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The object is new to this process.
    Added,
    /// The object changed.
    Modified,
    /// The object was deleted.
    Deleted,
}

impl Change {
    /// All three changes, for loops over them.
    pub const ALL: [Self; 3] = [Self::Added, Self::Modified, Self::Deleted];

    /// Returns the change as a lower-case word: `added`, `modified` or `deleted`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Modified => "modified",
            Self::Deleted => "deleted",
        }
    }
}

/// The kind, names and UID of an object, for log lines. It is displayed as `Pod default/web (uid)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectRef<'a> {
    /// The kind of the object, as in its field `kind`.
    pub kind: Cow<'static, str>,
    /// The namespace of the object; `None` for a cluster-scoped object.
    pub namespace: Option<&'a str>,
    /// The name of the object.
    pub name: &'a str,
    /// The UID of the object.
    pub uid: &'a str,
}

impl fmt::Display for ObjectRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ({})", self.kind, full_name(self.namespace, self.name), self.uid)
    }
}

/// Returns the name of an object with its namespace: `default/web`.
pub fn full_name(namespace: Option<&str>, name: &str) -> String {
    namespace.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"))
}

/// The key of an ordered queue: a handler gets the messages with the same key one after the other.
///
/// The key is a 64-bit hash. Two names with the same hash share a queue: their messages stay in order, but do not run concurrently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderingKey(u64);

impl OrderingKey {
    /// Hashes `name`: a UID, or a tuple such as `(namespace, name)`. The hash has a random seed for each process, so that nobody can
    /// choose names that share a queue.
    pub fn of(name: impl Hash) -> Self {
        static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        Self(SEED.hash_one(name))
    }
}

/// A hasher that returns an [`OrderingKey`] unchanged, because the key is already a hash.
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
