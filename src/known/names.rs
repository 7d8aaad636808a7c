//! Names in one text, each with a value.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

use hashbrown::HashTable;

/// A map whose keys stand one after the other in one text.
///
/// What lives long must not lie between what does not: fifty thousand names, each allocated while its object was decoded,
/// keep nearly every page of memory that those objects ever used.
pub(super) struct Names<T> {
    text: String,
    /// How many bytes of the text belong to no name any more.
    dead: usize,
    places: HashTable<Place<T>>,
    hasher: RandomState,
}

struct Place<T> {
    name: Range<usize>,
    value: T,
}

/// So much of the text may be dead before it is worth writing it anew.
const DEAD: usize = 4096;

impl<T> Default for Names<T> {
    fn default() -> Self {
        Self { text: String::new(), dead: 0, places: HashTable::new(), hasher: RandomState::new() }
    }
}

impl<T> Names<T> {
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub(super) fn get(&self, name: &str) -> Option<&T> {
        let place =
            self.places.find(self.hasher.hash_one(name), |place| self.text[place.name.clone()] == *name);
        place.map(|place| &place.value)
    }

    /// Puts `value` under `name`. Answers what was there.
    pub(super) fn insert(&mut self, name: &str, value: T) -> Option<T> {
        let Self { text, places, hasher, .. } = self;
        let hash = hasher.hash_one(name);
        if let Some(place) = places.find_mut(hash, |place| text[place.name.clone()] == *name) {
            return Some(std::mem::replace(&mut place.value, value));
        }
        let start = text.len();
        text.push_str(name);
        let place = Place { name: start..text.len(), value };
        places.insert_unique(hash, place, |place| hasher.hash_one(&text[place.name.clone()]));
        None
    }

    pub(super) fn remove(&mut self, name: &str) -> Option<T> {
        let Self { text, places, hasher, .. } = self;
        let found = places.find_entry(hasher.hash_one(name), |place| text[place.name.clone()] == *name);
        let (place, _) = found.ok()?.remove();
        self.dead += place.name.len();
        self.write_anew();
        Some(place.value)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.places.iter().map(|place| &place.value)
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().map(|place| &mut place.value)
    }

    /// Takes out all whose value is `gone`.
    pub(super) fn take(&mut self, gone: impl Fn(&T) -> bool) -> Vec<(String, T)> {
        let Self { text, places, dead, .. } = self;
        let taken = places.extract_if(|place| gone(&place.value)).map(|place| {
            *dead += place.name.len();
            (text[place.name].to_owned(), place.value)
        });
        let taken = taken.collect();
        self.write_anew();
        taken
    }

    /// Leaves out what is dead, once it is the greater part.
    fn write_anew(&mut self) {
        if self.dead < DEAD.max(self.text.len() / 2) {
            return;
        }
        let mut text = String::with_capacity(self.text.len() - self.dead);
        for place in &mut self.places {
            let start = text.len();
            text.push_str(&self.text[place.name.clone()]);
            place.name = start..text.len();
        }
        (self.text, self.dead) = (text, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(String, u8),
        Remove(String),
        Take(u8),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let name = || "[a-c]{0,3}";
        let step = prop_oneof![
            4 => (name(), any::<u8>()).prop_map(|(name, value)| Step::Insert(name, value)),
            3 => name().prop_map(Step::Remove),
            1 => any::<u8>().prop_map(Step::Take),
        ];
        proptest::collection::vec(step, 0..200)
    }

    proptest! {
        #[test]
        fn it_is_a_map(steps in steps()) {
            let (mut names, mut map) = (Names::default(), HashMap::<String, u8>::new());
            for step in steps {
                match step {
                    Step::Insert(name, value) => prop_assert_eq!(names.insert(&name, value), map.insert(name, value)),
                    Step::Remove(name) => prop_assert_eq!(names.remove(&name), map.remove(&name)),
                    Step::Take(most) => {
                        let mut taken = names.take(|value| *value > most);
                        let mut gone: Vec<_> = map.extract_if(|_, value| *value > most).collect();
                        taken.sort();
                        gone.sort();
                        prop_assert_eq!(taken, gone);
                    }
                }
                prop_assert_eq!(names.len(), map.len());
                prop_assert!(map.iter().all(|(name, value)| names.get(name) == Some(value)));
            }
        }
    }

    #[test]
    fn what_is_gone_takes_no_more_room_than_what_is_there() {
        let mut names = Names::default();
        for number in 0..100_000 {
            names.insert(&format!("pod-{number}"), ());
            if number >= 100 {
                names.remove(&format!("pod-{}", number - 100)).expect("it is there");
            }
        }
        assert_eq!(names.len(), 100);
        assert!(names.text.capacity() < 4 * DEAD, "{} bytes", names.text.capacity());
        assert!((99_900..100_000).all(|number| names.get(&format!("pod-{number}")).is_some()));
    }
}
