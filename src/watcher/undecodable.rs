//! The objects of one kind that exist and cannot be decoded. Pure.

use std::collections::{HashMap, HashSet};

use staffetta_handler::Undecodable;

/// How many of them are remembered and told; the others are counted, and nothing else.
const REMEMBERED: usize = 1000;

/// The objects of one kind that exist and cannot be decoded.
#[derive(Default)]
pub(super) struct UndecodableObjects {
    remembered: HashMap<String, Undecodable>,
    /// The UIDs of the others.
    others: HashSet<String>,
}

impl UndecodableObjects {
    /// This one is there. Answers whether that is to be told: it is one of those that are remembered, and in a new state.
    pub(super) fn seen(&mut self, object: &Undecodable) -> bool {
        let uid = &object.identity.uid;
        match self.remembered.get(uid) {
            Some(before) if before == object => return false,
            None if self.remembered.len() >= REMEMBERED => {
                self.others.insert(uid.clone());
                return false;
            }
            _ => {}
        }
        self.others.remove(uid);
        self.remembered.insert(uid.clone(), object.clone());
        true
    }

    /// This object is gone, or can be decoded by now.
    pub(super) fn forget(&mut self, uid: &str) {
        if !self.is_empty() && self.remembered.remove(uid).is_none() {
            self.others.remove(uid);
        }
    }

    /// Forgets all but those that are there.
    pub(super) fn retain(&mut self, there: &HashSet<String>) {
        self.remembered.retain(|uid, _| there.contains(uid));
        self.others.retain(|uid| there.contains(uid));
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.remembered.is_empty() && self.others.is_empty()
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.remembered.len() + self.others.len()
    }

    /// Those that are remembered.
    pub(super) fn remembered(&self) -> impl Iterator<Item = &Undecodable> {
        self.remembered.values()
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
    fn each_state_of_one_is_told_once() {
        let mut objects = UndecodableObjects::default();
        let told = ["odd", "odd", "odder"].map(|error| objects.seen(&object(1, error)));
        assert_eq!((told, objects.len()), ([true, false, true], 1));
        objects.forget("1");
        assert!(objects.is_empty() && objects.seen(&object(1, "odder")));
    }

    #[test]
    fn all_are_counted_however_few_are_remembered() {
        let mut objects = UndecodableObjects::default();
        let told = (0..REMEMBERED + 500).filter(|uid| objects.seen(&object(*uid, "odd"))).count();
        assert_eq!(
            (told, objects.remembered().count(), objects.len()),
            (REMEMBERED, REMEMBERED, REMEMBERED + 500)
        );
        assert!(objects.seen(&object(0, "odder")), "one that is remembered may change");
        objects.forget(&(REMEMBERED + 1).to_string());
        objects.forget("1");
        assert_eq!(objects.len(), REMEMBERED + 498);
        assert!(objects.seen(&object(REMEMBERED, "odd")), "there is room for another one");
        assert_eq!((objects.remembered().count(), objects.len()), (REMEMBERED, REMEMBERED + 498));
        objects.retain(&HashSet::from(["0".to_owned(), (REMEMBERED + 2).to_string()]));
        assert_eq!((objects.remembered().count(), objects.len()), (1, 2));
    }
}
