//! The objects of one kind that exist but cannot be decoded.

use std::collections::{HashMap, HashSet};

use staffetta_handler::Undecodable;

/// The number of undecodable objects that are stored and reported. Further ones are only counted.
const MAX_KEPT: usize = 1000;

/// The objects of one kind that exist and cannot be decoded.
#[derive(Default)]
pub(in crate::watcher) struct UndecodableObjects {
    /// The stored objects, by UID.
    kept: HashMap<String, Undecodable>,
    /// The UIDs of the objects beyond [`MAX_KEPT`].
    others: HashSet<String>,
}

impl UndecodableObjects {
    /// Records an object that cannot be decoded. Returns `true` if the caller must report it: it is stored, and its state is new.
    pub(super) fn insert(&mut self, object: &Undecodable) -> bool {
        let uid = &object.identity.uid;
        match self.kept.get(uid) {
            Some(before) if before == object => return false,
            None if self.kept.len() >= MAX_KEPT => {
                self.others.insert(uid.clone());
                return false;
            }
            _ => {}
        }
        self.others.remove(uid);
        self.kept.insert(uid.clone(), object.clone());
        true
    }

    /// Removes an object that was deleted or can be decoded now.
    pub(super) fn remove(&mut self, uid: &str) {
        if !self.is_empty() && self.kept.remove(uid).is_none() {
            self.others.remove(uid);
        }
    }

    /// Removes all objects whose UIDs are not in `existing`.
    pub(super) fn retain(&mut self, existing: &HashSet<String>) {
        self.kept.retain(|uid, _| existing.contains(uid));
        self.others.retain(|uid| existing.contains(uid));
    }

    /// Returns `true` if all objects can be decoded.
    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.others.is_empty()
    }

    /// Returns the number of all undecodable objects.
    pub(in crate::watcher) fn len(&self) -> usize {
        self.kept.len() + self.others.len()
    }

    /// Returns the stored objects, at most [`MAX_KEPT`].
    pub(in crate::watcher) fn kept(&self) -> impl Iterator<Item = &Undecodable> {
        self.kept.values()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use staffetta_handler::Identity;

    use super::*;

    fn object(uid: usize, error: &str) -> Undecodable {
        let identity = Identity::of::<Pod>(None, format!("pod-{uid}"), uid.to_string());
        Undecodable { identity, error: error.to_owned() }
    }

    #[test]
    fn each_state_of_an_object_is_reported_once() {
        let mut objects = UndecodableObjects::default();
        let reported = ["odd", "odd", "odder"].map(|error| objects.insert(&object(1, error)));
        assert_eq!((reported, objects.len()), ([true, false, true], 1));
        objects.remove("1");
        assert!(objects.is_empty() && objects.insert(&object(1, "odder")));
    }

    #[test]
    fn all_are_counted_however_few_are_kept() {
        let mut objects = UndecodableObjects::default();
        let reported = (0..MAX_KEPT + 500).filter(|uid| objects.insert(&object(*uid, "odd"))).count();
        assert_eq!((reported, objects.kept().count(), objects.len()), (MAX_KEPT, MAX_KEPT, MAX_KEPT + 500));
        assert!(objects.insert(&object(0, "odder")), "a kept object may change");
        objects.remove(&(MAX_KEPT + 1).to_string());
        objects.remove("1");
        assert_eq!(objects.len(), MAX_KEPT + 498);
        assert!(objects.insert(&object(MAX_KEPT, "odd")), "there is capacity for another one");
        assert_eq!((objects.kept().count(), objects.len()), (MAX_KEPT, MAX_KEPT + 498));
        objects.retain(&HashSet::from(["0".to_owned(), (MAX_KEPT + 2).to_string()]));
        assert_eq!((objects.kept().count(), objects.len()), (1, 2));
    }
}
