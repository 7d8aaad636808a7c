//! Which objects of one kind exist, and what that makes of the next thing a watch says. Pure.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use staffetta_handler::{AnyEvent, Change, Identity, Kind, Object};

/// The objects of one kind that were delivered and are not known to be gone.
///
/// kube's watch says "applied" and "deleted". From the identities kept here follow `Added` and `Modified`, and the
/// `Deleted` of what went while nobody watched.
pub(crate) struct Known {
    kind: Kind,
    namespaces: HashMap<Box<str>, HashMap<Box<str>, Entry>>,
    /// Counts the lists; an entry that a complete list did not show is gone.
    list: u32,
}

struct Entry {
    uid: Box<str>,
    version: Box<str>,
    list: u32,
}

impl Known {
    /// No object of `kind` is known yet.
    pub(crate) fn new(kind: &Kind) -> Self {
        Self { kind: kind.clone(), namespaces: HashMap::new(), list: 0 }
    }

    /// A list begins.
    pub(crate) fn list_begins(&mut self) {
        self.list = self.list.wrapping_add(1);
    }

    /// An object is there. The first event, if any, is the deletion of another one that had its name; the second says
    /// what this one is. A state that was delivered before says nothing.
    pub(crate) fn applied(&mut self, object: Arc<dyn Object>) -> [Option<AnyEvent>; 2] {
        let meta = object.meta();
        let uid = meta.uid.as_deref().unwrap_or_default();
        let version = meta.resource_version.as_deref().unwrap_or_default();
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        let name = meta.name.as_deref().unwrap_or_default();
        let entry = Entry { uid: uid.into(), version: version.into(), list: self.list };
        if !self.namespaces.contains_key(namespace) {
            self.namespaces.insert(namespace.into(), HashMap::new());
        }
        let names = self.namespaces.get_mut(namespace).expect("it was inserted above");
        let before = if let Some(known) = names.get_mut(name) {
            Some(std::mem::replace(known, entry))
        } else {
            names.insert(name.into(), entry)
        };
        match before {
            None => [None, self.kind.event(Change::Added, object)],
            Some(before) if *before.uid != *uid => {
                let gone = self.gone(namespace, name, before);
                [Some(gone), self.kind.event(Change::Added, object)]
            }
            Some(before) if *before.version == *version => [None, None],
            Some(_) => [None, self.kind.event(Change::Modified, object)],
        }
    }

    /// The server says that an object is gone.
    pub(crate) fn deleted(&mut self, object: Arc<dyn Object>) -> Option<AnyEvent> {
        let meta = object.meta();
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        let name = meta.name.as_deref().unwrap_or_default();
        if let Some(names) = self.namespaces.get_mut(namespace) {
            if names.get(name).is_some_and(|known| Some(&*known.uid) == meta.uid.as_deref()) {
                names.remove(name);
            }
            if names.is_empty() {
                self.namespaces.remove(namespace);
            }
        }
        self.kind.event(Change::Deleted, object)
    }

    /// The list is complete: what it did not show is gone.
    pub(crate) fn list_ends(&mut self) -> Vec<AnyEvent> {
        let list = self.list;
        let mut vanished = Vec::new();
        for (namespace, names) in &mut self.namespaces {
            let gone = names.extract_if(|_, entry| entry.list != list);
            vanished.extend(gone.map(|(name, entry)| (namespace.clone(), name, entry)));
        }
        self.namespaces.retain(|_, names| !names.is_empty());
        vanished.into_iter().map(|(namespace, name, entry)| self.gone(&namespace, &name, entry)).collect()
    }

    /// The UIDs of the objects that exist.
    pub(crate) fn uids(&self) -> HashSet<String> {
        self.namespaces.values().flat_map(HashMap::values).map(|entry| entry.uid.to_string()).collect()
    }

    /// How many objects exist.
    pub(crate) fn count(&self) -> usize {
        self.namespaces.values().map(HashMap::len).sum()
    }

    fn gone(&self, namespace: &str, name: &str, entry: Entry) -> AnyEvent {
        let identity = Identity {
            type_id: self.kind.type_id,
            kind: self.kind.name.clone(),
            namespace: (!namespace.is_empty()).then(|| namespace.to_owned()),
            name: name.to_owned(),
            uid: entry.uid.into(),
            resource_version: Some(entry.version.into()),
        };
        self.kind.missed(identity)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use staffetta_handler::testing::pod;

    use super::*;

    fn state(name: &str, uid: &str, version: &str) -> Arc<dyn Object> {
        let mut pod = pod("default", name);
        pod.metadata.uid = Some(uid.into());
        pod.metadata.resource_version = Some(version.into());
        Arc::new(pod)
    }

    fn applied(known: &mut Known, name: &str, uid: &str, version: &str) -> Vec<String> {
        known.applied(state(name, uid, version)).iter().flatten().map(|event| format!("{event:?}")).collect()
    }

    #[test]
    fn the_first_state_is_added_a_new_one_modified_and_a_known_one_nothing() {
        let mut known = Known::new(&Kind::of::<Pod>());
        assert_eq!(applied(&mut known, "web", "u1", "1"), ["Added Pod default/web (u1)"]);
        assert_eq!(applied(&mut known, "web", "u1", "2"), ["Modified Pod default/web (u1)"]);
        known.list_begins();
        assert!(applied(&mut known, "web", "u1", "2").is_empty());
        assert!(known.list_ends().is_empty());
    }

    #[test]
    fn what_a_list_does_not_show_is_deleted() {
        let mut known = Known::new(&Kind::of::<Pod>());
        applied(&mut known, "web", "u1", "1");
        applied(&mut known, "db", "u2", "1");
        known.list_begins();
        applied(&mut known, "db", "u2", "1");
        let gone: Vec<_> = known.list_ends().iter().map(|event| format!("{event:?}")).collect();
        assert_eq!(gone, ["Deleted Pod default/web (u1)"]);
        assert_eq!(known.uids(), HashSet::from(["u2".to_owned()]));
    }

    #[test]
    fn an_object_made_again_under_its_name_is_deleted_and_added() {
        let mut known = Known::new(&Kind::of::<Pod>());
        applied(&mut known, "web", "u1", "1");
        let events = applied(&mut known, "web", "u2", "5");
        assert_eq!(events, ["Deleted Pod default/web (u1)", "Added Pod default/web (u2)"]);
    }

    #[test]
    fn a_late_deletion_of_an_earlier_object_leaves_its_successor_alone() {
        let mut known = Known::new(&Kind::of::<Pod>());
        applied(&mut known, "web", "u2", "5");
        known.deleted(state("web", "u1", "4"));
        assert_eq!(known.uids(), HashSet::from(["u2".to_owned()]));
        known.deleted(state("web", "u2", "6"));
        assert!(known.uids().is_empty() && known.namespaces.is_empty());
    }
}
