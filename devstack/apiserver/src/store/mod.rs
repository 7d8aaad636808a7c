//! The store: the objects, one revision counter for all of them, and the log of events. No I/O, no clock.

mod log;
mod owners;

use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) use log::{Event, Expired};

use crate::object::{Key, Object, meta, meta_mut};
use log::EventLog;
use owners::Owners;
use serde_json::Value;

type Objects = BTreeMap<Key, Object>;

/// All objects of a cluster. Every write takes the next revision and leaves one event in the log.
pub(crate) struct Store {
    revision: u64,
    objects: BTreeMap<Arc<str>, Objects>,
    log: EventLog,
    owners: Owners,
}

impl Store {
    /// An empty store that remembers the last `log_capacity` events.
    pub(crate) fn new(log_capacity: usize) -> Self {
        Self {
            revision: 0,
            objects: BTreeMap::new(),
            log: EventLog::new(log_capacity),
            owners: Owners::default(),
        }
    }

    /// The revision of the last write.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// One object.
    pub(crate) fn get(&self, resource: &str, key: &Key) -> Option<&Object> {
        self.objects.get(resource)?.get(key)
    }

    /// All objects of a resource, of one namespace or of all, in the order of their keys.
    pub(crate) fn list(&self, resource: &str, namespace: Option<&str>) -> Vec<Object> {
        self.objects.get(resource).map(|objects| in_namespace(objects, namespace)).unwrap_or_default()
    }

    /// As [`list`](Store::list), at an earlier revision: the log is read backwards from now.
    pub(crate) fn list_at(
        &self,
        resource: &str,
        namespace: Option<&str>,
        revision: u64,
    ) -> Result<Vec<Object>, Expired> {
        if revision >= self.revision {
            return Ok(self.list(resource, namespace));
        }
        let mut objects = self.objects.get(resource).cloned().unwrap_or_default();
        for event in self.log.after(revision)?.rev().filter(|event| &*event.resource == resource) {
            match &event.before {
                Some(before) => objects.insert(event.key.clone(), Arc::clone(before)),
                None => objects.remove(&event.key),
            };
        }
        Ok(in_namespace(&objects, namespace))
    }

    /// The events after a revision, oldest first.
    pub(crate) fn events_after(&self, revision: u64) -> Result<impl Iterator<Item = &Event>, Expired> {
        self.log.after(revision)
    }

    /// Writes an object under the next revision, which becomes its resourceVersion.
    pub(crate) fn put(&mut self, resource: &Arc<str>, key: Key, mut object: Value) -> Object {
        self.revision += 1;
        meta_mut(&mut object).insert("resourceVersion".into(), self.revision.to_string().into());
        let object = Arc::new(object);
        let before =
            self.objects.entry(Arc::clone(resource)).or_default().insert(key.clone(), Arc::clone(&object));
        if let Some(before) = &before {
            self.owners.forget(resource, &key, before);
        }
        self.owners.note(resource, &key, &object);
        self.log.push(Event {
            revision: self.revision,
            resource: Arc::clone(resource),
            key,
            before,
            after: Some(Arc::clone(&object)),
        });
        object
    }

    /// Removes an object. What watchers see is the object as it stood, at the revision of its end.
    pub(crate) fn remove(&mut self, resource: &Arc<str>, key: &Key) -> Option<Object> {
        let before = self.objects.get_mut(resource)?.remove(key)?;
        self.revision += 1;
        self.owners.forget(resource, key, &before);
        self.log.push(Event {
            revision: self.revision,
            resource: Arc::clone(resource),
            key: key.clone(),
            before: Some(Arc::clone(&before)),
            after: None,
        });
        Some(before)
    }

    /// The objects that name this uid among their owners.
    pub(crate) fn dependents(&self, uid: &str) -> Vec<(Arc<str>, Key)> {
        self.owners.dependents(uid)
    }

    /// Is there any object with this uid in the resource?
    pub(crate) fn has_uid(&self, resource: &str, key: &Key, uid: &str) -> bool {
        self.get(resource, key).is_some_and(|object| meta(object, "uid") == uid)
    }

    /// The resources that hold objects of a namespace, with their keys.
    pub(crate) fn contents(&self, namespace: &str) -> Vec<(Arc<str>, Key)> {
        let of = |(resource, objects): (&Arc<str>, &Objects)| {
            let resource = Arc::clone(resource);
            in_namespace(objects, Some(namespace))
                .into_iter()
                .map(move |object| (Arc::clone(&resource), crate::object::key(&object)))
                .collect::<Vec<_>>()
        };
        self.objects.iter().flat_map(of).collect()
    }

    /// Forgets all events: whoever has not read them gets 410.
    pub(crate) fn trim(&mut self) {
        self.log.trim(self.revision);
    }
}

fn in_namespace(objects: &Objects, namespace: Option<&str>) -> Vec<Object> {
    match namespace {
        None => objects.values().cloned().collect(),
        Some(namespace) => objects
            .range(Key::new(namespace, "")..)
            .take_while(|(key, _)| key.namespace == namespace)
            .map(|(_, object)| Arc::clone(object))
            .collect(),
    }
}

#[cfg(test)]
mod tests;
