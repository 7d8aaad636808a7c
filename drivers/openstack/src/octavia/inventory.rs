//! What is known to stand: what was made, and what lists of all tell.

use std::hash::Hash;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dashmap::DashMap;

/// What is known to stand, each thing by its key with what is known of it. A list of all takes out what it does not tell of, but
/// nothing that was made while it was read.
#[derive(Debug)]
pub(super) struct Inventory<K: Eq + Hash, V> {
    /// Whether all were listed once.
    complete: AtomicBool,
    /// How many looks at all have begun.
    looks: AtomicU64,
    /// Each thing, and how many looks had begun when it was seen.
    things: DashMap<K, (V, u64)>,
}

impl<K: Eq + Hash, V> Default for Inventory<K, V> {
    fn default() -> Self {
        Self { complete: AtomicBool::default(), looks: AtomicU64::default(), things: DashMap::default() }
    }
}

impl<K: Eq + Hash, V> Inventory<K, V> {
    /// A look at all begins. The answer is its number.
    pub(super) fn look(&self) -> u64 {
        self.looks.fetch_add(1, Ordering::AcqRel)
    }

    /// The look of that number is over: what is `standing` does, and whatever was made since it began.
    pub(super) fn listed(&self, look: u64, standing: impl Fn(&K) -> bool) {
        self.things.retain(|key, (_, seen)| *seen > look || standing(key));
        self.complete.store(true, Ordering::Release);
    }

    /// Whether all were listed once.
    pub(super) fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Acquire)
    }

    /// This stands.
    pub(super) fn insert(&self, key: K, value: V) {
        self.things.insert(key, (value, self.looks.load(Ordering::Acquire)));
    }

    /// This does not stand any more.
    pub(super) fn remove(&self, key: &K) {
        self.things.remove(key);
    }

    /// Whether this stands, as far as is known.
    pub(super) fn contains(&self, key: &K) -> bool {
        self.things.contains_key(key)
    }

    /// What is known of this.
    pub(super) fn get(&self, key: &K) -> Option<V>
    where
        V: Clone,
    {
        self.things.get(key).map(|entry| entry.0.clone())
    }

    /// Whether this is known of anything.
    pub(super) fn has(&self, value: &V) -> bool
    where
        V: PartialEq,
    {
        self.things.iter().any(|entry| entry.value().0 == *value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_takes_out_what_it_does_not_tell_of_but_nothing_that_was_made_meanwhile() {
        let inventory = Inventory::default();
        assert!(!inventory.is_complete());
        inventory.insert("gone", ());
        inventory.insert("stays", ());
        let look = inventory.look();
        inventory.insert("made meanwhile", ());
        inventory.listed(look, |key| *key == "stays");
        let known = ["gone", "stays", "made meanwhile"].map(|key| inventory.contains(&key));
        assert_eq!((known, inventory.is_complete()), ([false, true, true], true));
        inventory.listed(inventory.look(), |_| false);
        assert!(!inventory.contains(&"made meanwhile"), "somebody removed it");
    }
}
