//! What calls that were not made would have changed.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::owner::{Marked, Owner};

/// The things that would be there or gone by now, over those that are.
pub(super) struct Overlay<K, T>(Mutex<HashMap<K, Option<Marked<T>>>>);

impl<K, T> Default for Overlay<K, T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, T: Clone> Overlay<K, T> {
    /// The thing would be there, as it is here.
    pub(super) fn put(&self, id: K, owner: Option<Owner>, thing: T) {
        self.changes().insert(id, Some(Marked { owner, thing }));
    }

    /// The thing would be as it is here, whosever it is.
    pub(super) fn change(&self, id: K, thing: T) {
        let mut changes = self.changes();
        let owner = changes.get(&id).and_then(|known| known.as_ref()?.owner.clone());
        changes.insert(id, Some(Marked { owner, thing }));
    }

    /// The thing would be gone.
    pub(super) fn remove(&self, id: K) {
        self.changes().insert(id, None);
    }

    /// Whether the thing would be as it is here.
    pub(super) fn knows(&self, id: &K) -> bool {
        self.changes().get(id).is_some_and(Option::is_some)
    }

    /// What a read for `owner`, or for all, would answer by then, of what it answered now. What changed and is not known to
    /// be anybody's keeps the owner that the read tells.
    pub(super) fn over(
        &self,
        read: Vec<Marked<T>>,
        id: impl Fn(&T) -> K,
        owner: Option<&Owner>,
    ) -> Vec<Marked<T>> {
        let changes = self.changes();
        let seen: HashSet<K> = read.iter().map(|present| id(&present.thing)).collect();
        let kept = read.into_iter().filter_map(|present| match changes.get(&id(&present.thing)) {
            None => Some(present),
            Some(change) => change.clone().map(|made| Marked { owner: made.owner.or(present.owner), ..made }),
        });
        let wanted = |made: &Marked<T>| match (&made.owner, owner) {
            (Some(marked), Some(owner)) => marked.uid == owner.uid,
            (marked, None) => marked.is_some(),
            (None, Some(_)) => false,
        };
        let made =
            changes.iter().filter(|(key, _)| !seen.contains(key)).filter_map(|(_, change)| change.clone());
        kept.chain(made.filter(wanted)).collect()
    }

    fn changes(&self) -> MutexGuard<'_, HashMap<K, Option<Marked<T>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(uid: &str) -> Owner {
        Owner { namespace: "default".into(), name: uid.into(), uid: uid.into() }
    }

    fn marked(uid: &str, thing: (u8, char)) -> Marked<(u8, char)> {
        Marked { owner: Some(owner(uid)), thing }
    }

    #[test]
    fn a_read_shows_the_world_as_it_would_be() {
        let overlay = Overlay::default();
        overlay.put(3, Some(owner("new")), (3, 'n'));
        overlay.remove(1);
        overlay.change(2, (2, 'c'));
        overlay.change(9, (9, 'o'));
        let over = |owner: Option<&Owner>, read: &[Marked<(u8, char)>]| {
            let mut over = overlay.over(read.to_vec(), |thing| thing.0, owner);
            over.sort_by_key(|marked| marked.thing);
            over
        };
        let all = [marked("gone", (1, 'x')), marked("old", (2, 'x')), marked("same", (4, 'x'))];
        let expected = [marked("old", (2, 'c')), marked("new", (3, 'n')), marked("same", (4, 'x'))];
        assert_eq!(over(None, &all), expected, "and what is nobody's is in no list");
        assert_eq!(over(Some(&owner("new")), &[]), [marked("new", (3, 'n'))]);
        assert_eq!(over(Some(&owner("old")), &all[1..2]), [marked("old", (2, 'c'))]);
        assert_eq!(over(Some(&owner("gone")), &all[..1]), []);
    }

    #[test]
    fn what_was_made_keeps_its_owner_when_it_changes() {
        let overlay = Overlay::default();
        overlay.put(3, Some(owner("new")), (3, 'n'));
        overlay.change(3, (3, 'c'));
        assert_eq!(overlay.over(Vec::new(), |thing| thing.0, None), [marked("new", (3, 'c'))]);
        assert_eq!((overlay.knows(&3), overlay.knows(&4)), (true, false));
    }
}
