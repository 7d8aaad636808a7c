//! A store for the identities of all objects of one kind. It turns watch updates into `Added`, `Modified` and `Deleted` events. This
//! module does no I/O.

mod compact;
mod name_table;

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use staffetta_handler::{AnyEvent, Change, Identity, Kind, ObjectRef, Undecodable, WatchItem};

use compact::CompactUid;
use name_table::NameTable;

/// The number of undecodable objects that are kept and reported. Further ones are only counted.
const MAX_UNDECODABLE: usize = 1000;

/// The identities of all objects of one kind that exist, as far as the watch has reported.
///
/// kube's watcher reports "applied" and "deleted" only. The identities in this store distinguish `Added` from `Modified`, and show
/// which objects vanished while the watch was disconnected, for which a `Deleted` follows.
pub(super) struct ObjectStore {
    kind: Kind,
    namespaces: HashMap<Box<str>, NameTable<StoredObject>>,
    /// The objects that cannot be decoded, by UID; at most [`MAX_UNDECODABLE`].
    undecodable: HashMap<String, Undecodable>,
    /// The number of the current list. An object with another number was not part of that list.
    list: u32,
    /// The highest resourceVersion with which the watch has reported an object; 0 if it is not known.
    highest: u64,
    /// The hasher of resourceVersions.
    hasher: RandomState,
}

/// The stored identity of one object.
struct StoredObject {
    uid: CompactUid,
    /// A hash of the resourceVersion; `None` if the next state of the object is to be delivered in any case.
    version: Option<u64>,
    /// The number of the list during or after which the object was last reported.
    list: u32,
    /// `true` if the last reported state of the object could be decoded.
    decoded: bool,
    /// `true` once an event of the object was delivered; `false` as long as the object could never be decoded.
    delivered: bool,
}

/// The result of [`ObjectStore::apply`] for one object that the watch reported: the events to deliver.
pub(super) struct Applied {
    /// The deletion of another object that had the same name before, then the change of the reported object; each `None` if there is none.
    pub(super) events: [Option<AnyEvent>; 2],
    /// The object itself if it is to be reported to the user, because it cannot be decoded; `None` if it can, if this state was reported
    /// before, or if too many such objects are kept.
    pub(super) undecodable: Option<Undecodable>,
}

impl ObjectStore {
    /// Creates an empty store for objects of `kind`.
    pub(super) fn new(kind: &Kind) -> Self {
        Self {
            kind: kind.clone(),
            namespaces: HashMap::new(),
            undecodable: HashMap::new(),
            list: 0,
            highest: 0,
            hasher: RandomState::new(),
        }
    }

    /// Begins a complete list. Objects that are not passed to [`apply`](Self::apply) before [`end_list`](Self::end_list) count as deleted.
    pub(super) fn begin_list(&mut self) {
        self.list = self.list.wrapping_add(1);
    }

    /// Records that an object exists, and returns the events to deliver for it. There is no event for a state that was delivered before,
    /// nor for an object that cannot be decoded.
    pub(super) fn apply(&mut self, item: WatchItem) -> Applied {
        let decoded = matches!(item, WatchItem::Object(_));
        let (ObjectRef { namespace, name, uid, .. }, version) = (item.object_ref(), item.version());
        let namespace = namespace.unwrap_or_default();
        self.highest = self.highest.max(number(version));
        if decoded && !self.undecodable.is_empty() {
            self.undecodable.remove(uid);
        }
        let (uid, version) = (CompactUid::from(uid), self.hash(version));
        let object = StoredObject {
            uid: uid.clone(),
            version: version.filter(|_| decoded),
            list: self.list,
            decoded,
            delivered: decoded,
        };
        let before = self.insert(namespace, name, object).filter(|before| before.delivered);
        let (change, replaced) = match &before {
            None => (Some(Change::Added), None),
            Some(before) if before.uid != uid => {
                (Some(Change::Added), Some(self.vanished(namespace, name, before)))
            }
            Some(before) => ((before.version != version).then_some(Change::Modified), None),
        };
        match item {
            WatchItem::Object(object) => {
                let event = change.map(|change| AnyEvent::Object(change, object));
                Applied { events: [replaced, event], undecodable: None }
            }
            WatchItem::Undecodable(object) => {
                let undecodable = self.keep(&object).then_some(object);
                Applied { events: [replaced, None], undecodable }
            }
        }
    }

    /// Keeps an object that cannot be decoded. Returns `true` if the object must be reported: it is kept, and its state is new.
    fn keep(&mut self, object: &Undecodable) -> bool {
        let uid = &object.identity.uid;
        let is_new = match self.undecodable.get(uid) {
            Some(before) => before != object,
            None => self.undecodable.len() < MAX_UNDECODABLE,
        };
        if is_new {
            self.undecodable.insert(uid.clone(), object.clone());
        }
        is_new
    }

    /// Stores the current state of an object. Returns the previous entry of this name, whose UID may differ; `None` if there was none.
    fn insert(&mut self, namespace: &str, name: &str, mut object: StoredObject) -> Option<StoredObject> {
        if !self.namespaces.contains_key(namespace) {
            self.namespaces.insert(namespace.into(), NameTable::default());
        }
        let names = self.namespaces.get_mut(namespace).expect("it was inserted above");
        object.delivered |=
            names.get(name).is_some_and(|before| before.delivered && before.uid == object.uid);
        names.insert(name, object)
    }

    /// Records that the server reported the deletion of an object, and returns the event.
    pub(super) fn delete(&mut self, item: WatchItem) -> AnyEvent {
        let ObjectRef { namespace, name, uid, .. } = item.object_ref();
        let namespace = namespace.unwrap_or_default();
        self.highest = self.highest.max(number(item.version()));
        self.undecodable.remove(uid);
        if let Some(names) = self.namespaces.get_mut(namespace) {
            if names.get(name).is_some_and(|object| object.uid == CompactUid::from(uid)) {
                names.remove(name);
            }
            if names.is_empty() {
                self.namespaces.remove(namespace);
            }
        }
        match item {
            WatchItem::Object(object) => AnyEvent::Object(Change::Deleted, object),
            WatchItem::Undecodable(object) => AnyEvent::Missed(Arc::new(object.identity)),
        }
    }

    /// Ends a list. Removes all objects that the list did not contain, and returns their deletions.
    pub(super) fn end_list(&mut self) -> Vec<AnyEvent> {
        let list = self.list;
        let mut vanished = Vec::new();
        for (namespace, names) in &mut self.namespaces {
            let removed = names.extract(|object| object.list != list);
            vanished.extend(removed.into_iter().map(|(name, object)| (namespace.clone(), name, object)));
        }
        self.namespaces.retain(|_, names| !names.is_empty());
        if !self.undecodable.is_empty() {
            let existing = self.uids();
            self.undecodable.retain(|uid, _| existing.contains(uid));
        }
        vanished.iter().map(|(namespace, name, object)| self.vanished(namespace, name, object)).collect()
    }

    /// Returns `true` if `newest`, the current resourceVersion of the server, is lower than the highest one that the watch has reported, or
    /// than `resumed_from`, from which the watch was last requested. The server has then lost part of its history.
    pub(super) fn is_ahead_of(&self, newest: &str, resumed_from: u64) -> bool {
        newest.parse::<u64>().is_ok_and(|newest| newest < self.highest.max(resumed_from))
    }

    /// Forgets all resourceVersions, so that the next list delivers each object again.
    pub(super) fn invalidate_versions(&mut self) {
        self.highest = 0;
        for object in self.namespaces.values_mut().flat_map(NameTable::values_mut) {
            object.version = None;
        }
    }

    /// Forgets the resourceVersions of all objects in a namespace, so that the next list delivers each of them again. Returns `true` if
    /// there are any.
    pub(super) fn invalidate_namespace(&mut self, namespace: &str) -> bool {
        let Some(names) = self.namespaces.get_mut(namespace) else { return false };
        names.values_mut().for_each(|object| object.version = None);
        true
    }

    /// Returns each namespace with an object of this name; if `namespace` is given, only that one. The namespace of cluster-scoped objects
    /// is empty.
    pub(super) fn find(&self, namespace: Option<&str>, name: &str) -> impl Iterator<Item = &str> {
        let selected =
            self.namespaces.iter().filter(move |(found, _)| namespace.is_none_or(|only| only == &***found));
        selected.filter(move |(_, names)| names.get(name).is_some()).map(|(found, _)| &**found)
    }

    /// Returns the number of objects.
    pub(super) fn len(&self) -> usize {
        self.namespaces.values().map(NameTable::len).sum()
    }

    /// Returns the UIDs of all objects.
    pub(super) fn uids(&self) -> HashSet<String> {
        self.namespaces.values().flat_map(NameTable::values).map(|object| object.uid.to_string()).collect()
    }

    /// Returns the number of objects that cannot be decoded.
    pub(super) fn undecodable_count(&self) -> usize {
        self.namespaces.values().flat_map(NameTable::values).filter(|object| !object.decoded).count()
    }

    /// Returns the objects that cannot be decoded, at most [`MAX_UNDECODABLE`].
    pub(super) fn undecodable(&self) -> impl Iterator<Item = &Undecodable> {
        self.undecodable.values()
    }

    /// Returns the hash of a resourceVersion; `None` if that is empty.
    fn hash(&self, version: &str) -> Option<u64> {
        (!version.is_empty()).then(|| self.hasher.hash_one(version))
    }

    /// Returns the `Deleted` event of an object whose last state is not known.
    fn vanished(&self, namespace: &str, name: &str, object: &StoredObject) -> AnyEvent {
        AnyEvent::Missed(Arc::new(Identity {
            type_id: self.kind.type_id,
            kind: self.kind.name.clone(),
            api_version: self.kind.api_version.clone(),
            namespace: (!namespace.is_empty()).then(|| namespace.to_owned()),
            name: name.to_owned(),
            uid: object.uid.to_string(),
            resource_version: None,
        }))
    }
}

/// Parses a resourceVersion as a number (Kubernetes API concepts, "Resource versions"). Returns 0 if it is not a number.
fn number(version: &str) -> u64 {
    version.parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::Pod;
    use staffetta_handler::testing::pod;

    use super::*;

    fn state(name: &str, uid: &str, version: &str) -> WatchItem {
        let mut pod = pod("default", name);
        pod.metadata.uid = Some(uid.into());
        pod.metadata.resource_version = Some(version.into());
        WatchItem::Object(Arc::new(pod))
    }

    fn undecodable(name: &str, uid: &str, version: &str) -> WatchItem {
        let mut identity = Identity::of::<Pod>(Some("default".into()), name.into(), uid.into());
        identity.resource_version = Some(version.into());
        WatchItem::Undecodable(Undecodable { identity, error: "odd".into() })
    }

    fn apply(store: &mut ObjectStore, name: &str, uid: &str, version: &str) -> Vec<String> {
        store
            .apply(state(name, uid, version))
            .events
            .iter()
            .flatten()
            .map(|event| format!("{event:?}"))
            .collect()
    }

    #[test]
    fn a_new_object_is_added_a_new_state_modified_and_a_repeated_state_nothing() {
        let mut store = ObjectStore::new(&Kind::of::<Pod>());
        assert_eq!(apply(&mut store, "web", "u1", "1"), ["Added Pod default/web (u1)"]);
        assert_eq!(apply(&mut store, "web", "u1", "2"), ["Modified Pod default/web (u1)"]);
        store.begin_list();
        assert!(apply(&mut store, "web", "u1", "2").is_empty());
        assert!(store.end_list().is_empty());
    }

    #[test]
    fn an_object_is_found_by_name_while_it_exists() {
        let mut store = ObjectStore::new(&Kind::of::<Pod>());
        apply(&mut store, "web", "u1", "1");
        let has = |store: &ObjectStore, namespace| store.find(namespace, "web").next().is_some();
        assert!(has(&store, Some("default")) && has(&store, None));
        assert!(!has(&store, Some("other")) && store.find(None, "wbe").next().is_none());
        store.delete(state("web", "u1", "2"));
        assert!(!has(&store, Some("default")) && !has(&store, None));
    }

    #[test]
    fn an_object_missing_from_a_list_is_deleted() {
        let mut store = ObjectStore::new(&Kind::of::<Pod>());
        apply(&mut store, "web", "u1", "1");
        apply(&mut store, "db", "u2", "1");
        store.begin_list();
        apply(&mut store, "db", "u2", "1");
        let gone: Vec<_> = store.end_list().iter().map(|event| format!("{event:?}")).collect();
        assert_eq!(gone, ["Deleted Pod default/web (u1)"]);
        assert_eq!(store.uids(), HashSet::from(["u2".to_owned()]));
    }

    #[test]
    fn an_object_recreated_under_its_name_is_deleted_and_added() {
        let mut store = ObjectStore::new(&Kind::of::<Pod>());
        apply(&mut store, "web", "u1", "1");
        let events = apply(&mut store, "web", "u2", "5");
        assert_eq!(events, ["Deleted Pod default/web (u1)", "Added Pod default/web (u2)"]);
    }

    #[test]
    fn a_late_deletion_of_a_previous_object_does_not_remove_its_successor() {
        let mut store = ObjectStore::new(&Kind::of::<Pod>());
        apply(&mut store, "web", "u2", "5");
        store.delete(state("web", "u1", "4"));
        assert_eq!(store.uids(), HashSet::from(["u2".to_owned()]));
        store.delete(state("web", "u2", "6"));
        assert!(store.uids().is_empty() && store.namespaces.is_empty());
    }

    #[test]
    fn an_undecodable_object_exists_and_is_added_once_it_can_be_decoded() {
        let mut store = ObjectStore::new(&Kind::of::<Pod>());
        assert_eq!(
            store.apply(undecodable("web", "u1", "1")).events.map(|event| event.is_some()),
            [false, false]
        );
        assert_eq!(store.uids(), HashSet::from(["u1".to_owned()]), "its resources are not released");
        assert_eq!(apply(&mut store, "web", "u1", "2"), ["Added Pod default/web (u1)"]);
        assert_eq!(
            store.apply(undecodable("web", "u1", "3")).events.map(|event| event.is_some()),
            [false, false]
        );
        assert_eq!(apply(&mut store, "web", "u1", "3"), ["Modified Pod default/web (u1)"]);
        store.begin_list();
        store.apply(undecodable("web", "u1", "4"));
        assert!(store.end_list().is_empty(), "it exists");
        let gone = store.delete(undecodable("web", "u1", "5"));
        assert_eq!(format!("{gone:?}"), "Deleted Pod default/web (u1)");
        assert_eq!(store.len(), 0);
    }

    #[test]
    fn each_state_of_an_undecodable_object_is_reported_once() {
        let mut store = ObjectStore::new(&Kind::of::<Pod>());
        let mut reported = |version| store.apply(undecodable("web", "u1", version)).undecodable.is_some();
        assert_eq!(["1", "1", "2"].map(&mut reported), [true, false, true]);
        assert_eq!((store.undecodable().count(), store.undecodable_count()), (1, 1));
        apply(&mut store, "web", "u1", "3");
        assert_eq!((store.undecodable().count(), store.undecodable_count()), (0, 0));
        assert!(store.apply(undecodable("web", "u1", "2")).undecodable.is_some());
    }

    #[test]
    fn all_undecodable_objects_are_counted_however_few_are_kept() {
        let item = |uid: usize, version| undecodable(&format!("pod-{uid}"), &uid.to_string(), version);
        let mut store = ObjectStore::new(&Kind::of::<Pod>());
        let reported = (0..MAX_UNDECODABLE + 500)
            .filter(|uid| store.apply(item(*uid, "1")).undecodable.is_some())
            .count();
        let counts = |store: &ObjectStore| (store.undecodable().count(), store.undecodable_count());
        assert_eq!((reported, counts(&store)), (MAX_UNDECODABLE, (MAX_UNDECODABLE, MAX_UNDECODABLE + 500)));
        assert!(store.apply(item(0, "2")).undecodable.is_some(), "a kept object may change");
        store.delete(item(MAX_UNDECODABLE + 1, "2"));
        store.delete(item(1, "2"));
        assert_eq!(counts(&store), (MAX_UNDECODABLE - 1, MAX_UNDECODABLE + 498));
        assert!(
            store.apply(item(MAX_UNDECODABLE, "1")).undecodable.is_some(),
            "there is room for another one"
        );
        assert_eq!(counts(&store), (MAX_UNDECODABLE, MAX_UNDECODABLE + 498));
        store.begin_list();
        for uid in [0, MAX_UNDECODABLE + 2] {
            store.apply(item(uid, "3"));
        }
        store.end_list();
        assert_eq!(counts(&store), (1, 2));
    }

    #[test]
    fn an_object_that_was_never_delivered_is_not_deleted_when_another_takes_its_name() {
        let mut store = ObjectStore::new(&Kind::of::<Pod>());
        store.apply(undecodable("web", "u1", "1"));
        assert_eq!(apply(&mut store, "web", "u2", "2"), ["Added Pod default/web (u2)"]);
    }

    #[test]
    fn after_the_server_lost_history_each_object_is_delivered_again() {
        let mut store = ObjectStore::new(&Kind::of::<Pod>());
        apply(&mut store, "web", "u1", "7");
        apply(&mut store, "db", "u2", "9");
        assert!(
            store.is_ahead_of("8", 0) && !store.is_ahead_of("9", 0) && !store.is_ahead_of("no number", 99)
        );
        assert!(store.is_ahead_of("9", 10), "a bookmark was ahead of all objects");
        store.invalidate_versions();
        store.begin_list();
        assert_eq!(apply(&mut store, "web", "u1", "7"), ["Modified Pod default/web (u1)"]);
        let vanished = store.end_list();
        assert_eq!((vanished.len(), vanished[0].identity().resource_version), (1, None));
        assert!(!store.is_ahead_of("8", 0));
    }
}
