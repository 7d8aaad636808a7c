//! Which objects of one kind exist, and what that makes of the next thing a watch says. Pure.

mod names;
mod stamp;

use std::collections::{HashMap, HashSet};

use staffetta_handler::{AnyEvent, Change, Identity, Kind, Sighting, Undecodable};

use names::Names;
use stamp::{Uid, Version};

/// The objects of one kind that exist, as far as a watch has told.
///
/// kube's watch says "applied" and "deleted". From the identities kept here follow `Added` and `Modified`, and the
/// `Deleted` of what went while nobody watched.
pub(crate) struct Known {
    kind: Kind,
    namespaces: HashMap<Box<str>, Names<Entry>>,
    /// Counts the lists; an entry that a complete list did not show is gone.
    list: u32,
    /// The highest resourceVersion of all objects: how far in its history the server was.
    highest: u64,
}

struct Entry {
    uid: Uid,
    version: Version,
    list: u32,
    /// Whether anything of it was delivered: one that never could be decoded was not.
    delivered: bool,
}

/// What a watch has shown, in short.
struct Shown<'a> {
    namespace: &'a str,
    name: &'a str,
    uid: &'a str,
    version: &'a str,
}

impl Known {
    /// No object of `kind` is known yet.
    pub(crate) fn new(kind: &Kind) -> Self {
        Self { kind: kind.clone(), namespaces: HashMap::new(), list: 0, highest: 0 }
    }

    /// A list begins.
    pub(crate) fn list_begins(&mut self) {
        self.list = self.list.wrapping_add(1);
    }

    /// An object is there. The first event, if any, is the deletion of another one that had its name; the second says
    /// what this one is. A state that was delivered before says nothing, and neither does one that cannot be decoded.
    pub(crate) fn applied(&mut self, seen: Sighting) -> [Option<AnyEvent>; 2] {
        let decoded = matches!(seen, Sighting::Object(_));
        let shown = Shown::of(&seen);
        self.highest = self.highest.max(number(shown.version));
        let before = self.enter(&shown, decoded);
        let gone = match before {
            Some(ref before) if before.uid != Uid::from(shown.uid) => {
                before.delivered.then(|| self.gone(shown.namespace, shown.name, before))
            }
            _ => None,
        };
        let before = before.filter(|before| before.delivered && before.uid == Uid::from(shown.uid));
        let change = match before {
            None => Change::Added,
            Some(before) if before.version == Version::from(shown.version) => return [gone, None],
            Some(_) => Change::Modified,
        };
        match seen {
            Sighting::Object(object) => [gone, self.kind.event(change, object)],
            Sighting::Undecodable(_) => [gone, None],
        }
    }

    /// Takes an object down as it is now. Answers what was known under its name.
    fn enter(&mut self, shown: &Shown<'_>, decoded: bool) -> Option<Entry> {
        let version = if decoded { shown.version.into() } else { Version::Unknown };
        let entry = Entry { uid: shown.uid.into(), version, list: self.list, delivered: decoded };
        if !self.namespaces.contains_key(shown.namespace) {
            self.namespaces.insert(shown.namespace.into(), Names::default());
        }
        let names = self.namespaces.get_mut(shown.namespace).expect("it was inserted above");
        let known = names.get(shown.name);
        let delivered = decoded || known.is_some_and(|known| known.delivered && known.uid == entry.uid);
        names.insert(shown.name, Entry { delivered, ..entry })
    }

    /// The server says that an object is gone.
    pub(crate) fn deleted(&mut self, seen: Sighting) -> Option<AnyEvent> {
        let shown = Shown::of(&seen);
        self.highest = self.highest.max(number(shown.version));
        if let Some(names) = self.namespaces.get_mut(shown.namespace) {
            if names.get(shown.name).is_some_and(|known| known.uid == Uid::from(shown.uid)) {
                names.remove(shown.name);
            }
            if names.is_empty() {
                self.namespaces.remove(shown.namespace);
            }
        }
        match seen {
            Sighting::Object(object) => self.kind.event(Change::Deleted, object),
            Sighting::Undecodable(object) => Some(self.kind.missed(object.identity)),
        }
    }

    /// Whether a server whose newest resourceVersion is `newest` has lost what was heard of it before. `reached` is how
    /// far bookmarks have taken the watch, which objects of other kinds move on.
    pub(crate) fn is_ahead_of(&self, newest: &str, reached: u64) -> bool {
        newest.parse::<u64>().is_ok_and(|newest| newest < self.highest.max(reached))
    }

    /// The server's history went back: versions say nothing any more, and each object is delivered again.
    pub(crate) fn rewind(&mut self) {
        self.highest = 0;
        for entry in self.namespaces.values_mut().flat_map(Names::values_mut) {
            entry.version = Version::Unknown;
        }
    }

    /// Whether an object of that name exists, in any namespace where none is said.
    pub(crate) fn has(&self, namespace: Option<&str>, name: &str) -> bool {
        let has = |names: &Names<Entry>| names.get(name).is_some();
        match namespace {
            Some(namespace) => self.namespaces.get(namespace).is_some_and(has),
            None => self.namespaces.values().any(has),
        }
    }

    /// How many objects exist.
    pub(crate) fn len(&self) -> usize {
        self.namespaces.values().map(Names::len).sum()
    }

    /// The list is complete: what it did not show is gone.
    pub(crate) fn list_ends(&mut self) -> Vec<AnyEvent> {
        let list = self.list;
        let mut vanished = Vec::new();
        for (namespace, names) in &mut self.namespaces {
            let gone = names.take(|entry| entry.list != list);
            vanished.extend(gone.into_iter().map(|(name, entry)| (namespace.clone(), name, entry)));
        }
        self.namespaces.retain(|_, names| !names.is_empty());
        vanished.into_iter().map(|(namespace, name, entry)| self.gone(&namespace, &name, &entry)).collect()
    }

    /// The UIDs of the objects that exist.
    pub(crate) fn uids(&self) -> HashSet<String> {
        self.namespaces.values().flat_map(Names::values).map(|entry| entry.uid.to_string()).collect()
    }

    fn gone(&self, namespace: &str, name: &str, entry: &Entry) -> AnyEvent {
        let identity = Identity {
            type_id: self.kind.type_id,
            kind: self.kind.name.clone(),
            api_version: self.kind.api_version.clone(),
            namespace: (!namespace.is_empty()).then(|| namespace.to_owned()),
            name: name.to_owned(),
            uid: entry.uid.to_string(),
            resource_version: Some(entry.version.to_string()),
        };
        self.kind.missed(identity)
    }
}

impl<'a> Shown<'a> {
    fn of(seen: &'a Sighting) -> Self {
        match seen {
            Sighting::Object(object) => {
                let meta = object.meta();
                Self {
                    namespace: meta.namespace.as_deref().unwrap_or_default(),
                    name: meta.name.as_deref().unwrap_or_default(),
                    uid: meta.uid.as_deref().unwrap_or_default(),
                    version: meta.resource_version.as_deref().unwrap_or_default(),
                }
            }
            Sighting::Undecodable(Undecodable { identity, .. }) => Self {
                namespace: identity.namespace.as_deref().unwrap_or_default(),
                name: &identity.name,
                uid: &identity.uid,
                version: identity.resource_version.as_deref().unwrap_or_default(),
            },
        }
    }
}

/// Resource versions are compared as numbers (Kubernetes API concepts, "Resource versions"); 0 is older than all.
fn number(version: &str) -> u64 {
    version.parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::Pod;
    use staffetta_handler::testing::pod;

    use super::*;

    fn state(name: &str, uid: &str, version: &str) -> Sighting {
        let mut pod = pod("default", name);
        pod.metadata.uid = Some(uid.into());
        pod.metadata.resource_version = Some(version.into());
        Sighting::Object(Arc::new(pod))
    }

    fn undecodable(name: &str, uid: &str, version: &str) -> Sighting {
        let mut identity = Identity::of::<Pod>(Some("default".into()), name.into(), uid.into());
        identity.resource_version = Some(version.into());
        Sighting::Undecodable(Undecodable { identity, error: "odd".into() })
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
    fn an_object_is_known_by_its_name_while_it_exists() {
        let mut known = Known::new(&Kind::of::<Pod>());
        applied(&mut known, "web", "u1", "1");
        let has = |known: &Known, namespace| known.has(namespace, "web");
        assert!(has(&known, Some("default")) && has(&known, None));
        assert!(!has(&known, Some("other")) && !known.has(None, "wbe"));
        known.deleted(state("web", "u1", "2"));
        assert!(!has(&known, Some("default")) && !has(&known, None));
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

    #[test]
    fn one_that_cannot_be_decoded_exists_and_is_added_when_it_can_be() {
        let mut known = Known::new(&Kind::of::<Pod>());
        assert_eq!(known.applied(undecodable("web", "u1", "1")).map(|event| event.is_some()), [false, false]);
        assert_eq!(known.uids(), HashSet::from(["u1".to_owned()]), "nobody takes its things away");
        assert_eq!(applied(&mut known, "web", "u1", "2"), ["Added Pod default/web (u1)"]);
        assert_eq!(known.applied(undecodable("web", "u1", "3")).map(|event| event.is_some()), [false, false]);
        assert_eq!(applied(&mut known, "web", "u1", "3"), ["Modified Pod default/web (u1)"]);
        known.list_begins();
        known.applied(undecodable("web", "u1", "4"));
        assert!(known.list_ends().is_empty(), "it is there");
        let gone = known.deleted(undecodable("web", "u1", "5")).map(|event| format!("{event:?}"));
        assert_eq!(gone.as_deref(), Some("Deleted Pod default/web (u1)"));
        assert_eq!(known.len(), 0);
    }

    #[test]
    fn one_that_never_was_delivered_needs_no_deletion_when_another_takes_its_name() {
        let mut known = Known::new(&Kind::of::<Pod>());
        known.applied(undecodable("web", "u1", "1"));
        assert_eq!(applied(&mut known, "web", "u2", "2"), ["Added Pod default/web (u2)"]);
    }

    #[test]
    fn after_the_history_went_back_each_object_is_told_again() {
        let mut known = Known::new(&Kind::of::<Pod>());
        applied(&mut known, "web", "u1", "7");
        applied(&mut known, "db", "u2", "9");
        assert!(
            known.is_ahead_of("8", 0) && !known.is_ahead_of("9", 0) && !known.is_ahead_of("no number", 99)
        );
        assert!(known.is_ahead_of("9", 10), "a bookmark was ahead of all objects");
        known.rewind();
        known.list_begins();
        assert_eq!(applied(&mut known, "web", "u1", "7"), ["Modified Pod default/web (u1)"]);
        assert_eq!(known.list_ends().len(), 1);
        assert!(!known.is_ahead_of("8", 0));
    }
}
