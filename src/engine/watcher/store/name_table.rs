//! A map from names to values that keeps all names in one string.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

use hashbrown::HashTable;

/// A map from names to values, whose names are slices of one string.
///
/// The purpose is to save memory: a long-lived allocation keeps its memory page in use. Fifty thousand names, each allocated while its
/// object was decoded, would keep nearly every page that the decoding of those objects ever used.
pub(super) struct NameTable<T> {
    text: String,
    /// The number of bytes of `text` that belong to removed names.
    unused: usize,
    entries: HashTable<NameEntry<T>>,
    hasher: RandomState,
}

/// The range of a name in the text, and the value.
struct NameEntry<T> {
    name: Range<usize>,
    value: T,
}

/// The number of unused bytes below which the text is never compacted.
const MIN_UNUSED: usize = 4096;

impl<T> Default for NameTable<T> {
    fn default() -> Self {
        Self { text: String::new(), unused: 0, entries: HashTable::new(), hasher: RandomState::new() }
    }
}

impl<T> NameTable<T> {
    /// Returns the number of names.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns `true` if there are no names.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the value of a name; `None` if the name is not in the map.
    pub(super) fn get(&self, name: &str) -> Option<&T> {
        let hash = self.hasher.hash_one(name);
        let entry = self.entries.find(hash, |entry| self.text[entry.name.clone()] == *name);
        entry.map(|entry| &entry.value)
    }

    /// Stores `value` under `name`. Returns the previous value of that name; `None` if it had none.
    pub(super) fn insert(&mut self, name: &str, value: T) -> Option<T> {
        let Self { text, entries, hasher, .. } = self;
        let hash = hasher.hash_one(name);
        if let Some(entry) = entries.find_mut(hash, |entry| text[entry.name.clone()] == *name) {
            return Some(std::mem::replace(&mut entry.value, value));
        }
        let start = text.len();
        text.push_str(name);
        let entry = NameEntry { name: start..text.len(), value };
        entries.insert_unique(hash, entry, |entry| hasher.hash_one(&text[entry.name.clone()]));
        None
    }

    /// Removes a name, and returns its value; `None` if the name is not in the map.
    pub(super) fn remove(&mut self, name: &str) -> Option<T> {
        let Self { text, entries, hasher, .. } = self;
        let found = entries.find_entry(hasher.hash_one(name), |entry| text[entry.name.clone()] == *name);
        let (entry, _) = found.ok()?.remove();
        self.unused += entry.name.len();
        self.compact();
        Some(entry.value)
    }

    /// Returns all values, in no particular order.
    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().map(|entry| &entry.value)
    }

    /// Returns mutable references to all values, in no particular order.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut().map(|entry| &mut entry.value)
    }

    /// Removes and returns all entries whose value satisfies `predicate`.
    pub(super) fn extract(&mut self, predicate: impl Fn(&T) -> bool) -> Vec<(String, T)> {
        let Self { text, entries, unused, .. } = self;
        let extracted = entries.extract_if(|entry| predicate(&entry.value)).map(|entry| {
            *unused += entry.name.len();
            (text[entry.name].to_owned(), entry.value)
        });
        let extracted = extracted.collect();
        self.compact();
        extracted
    }

    /// Rewrites the text without the removed names, once these are more than half of it.
    fn compact(&mut self) {
        if self.unused < MIN_UNUSED.max(self.text.len() / 2) {
            return;
        }
        let mut text = String::with_capacity(self.text.len() - self.unused);
        for entry in &mut self.entries {
            let start = text.len();
            text.push_str(&self.text[entry.name.clone()]);
            entry.name = start..text.len();
        }
        (self.text, self.unused) = (text, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Operation {
        Insert(String, u8),
        Remove(String),
        Extract(u8),
    }

    fn steps() -> impl Strategy<Value = Vec<Operation>> {
        let name = || "[a-c]{0,3}";
        let step = prop_oneof![
            4 => (name(), any::<u8>()).prop_map(|(name, value)| Operation::Insert(name, value)),
            3 => name().prop_map(Operation::Remove),
            1 => any::<u8>().prop_map(Operation::Extract),
        ];
        proptest::collection::vec(step, 0..200)
    }

    proptest! {
        #[test]
        fn it_behaves_like_a_hash_map(steps in steps()) {
            let (mut names, mut map) = (NameTable::default(), HashMap::<String, u8>::new());
            for step in steps {
                match step {
                    Operation::Insert(name, value) => prop_assert_eq!(names.insert(&name, value), map.insert(name, value)),
                    Operation::Remove(name) => prop_assert_eq!(names.remove(&name), map.remove(&name)),
                    Operation::Extract(most) => {
                        let mut extracted = names.extract(|value| *value > most);
                        let mut gone: Vec<_> = map.extract_if(|_, value| *value > most).collect();
                        extracted.sort();
                        gone.sort();
                        prop_assert_eq!(extracted, gone);
                    }
                }
                prop_assert_eq!(names.len(), map.len());
                prop_assert!(map.iter().all(|(name, value)| names.get(name) == Some(value)));
            }
        }
    }

    #[test]
    fn removed_names_take_no_more_memory_than_existing_ones() {
        let mut names = NameTable::default();
        for number in 0..100_000 {
            names.insert(&format!("pod-{number}"), ());
            if number >= 100 {
                names.remove(&format!("pod-{}", number - 100)).expect("it exists");
            }
        }
        assert_eq!(names.len(), 100);
        assert!(names.text.capacity() < 4 * MIN_UNUSED, "{} bytes", names.text.capacity());
        assert!((99_900..100_000).all(|number| names.get(&format!("pod-{number}")).is_some()));
    }
}
