//! The operations on the store. They have no side effects but random names and receive the time as an argument.

mod closing;
mod create;
mod delete;
mod list;
mod pod;
pub(crate) mod scale;
mod update;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

pub(crate) use delete::{DeleteOptions, Deleted, Propagation};
pub(crate) use list::{ListQuery, Listing, parse_version, too_old};
pub(crate) use update::{Change, Part};

use crate::catalog::Catalog;
use crate::object::{Key, Object, meta, terminating};
use crate::status::Status;
use crate::store::Store;
use crate::table::{Resource, builtin};

const NAMESPACES: &str = "namespaces";
const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// Namespaces that every cluster has.
const STANDARD_NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// A cluster: its objects, the resources it serves, and what is still to be cleaned up.
pub(crate) struct Cluster {
    pub(crate) store: Store,
    pub(crate) catalog: Catalog,
    /// Objects that end only when others have: namespaces, definitions, foreground deletions. True once
    /// the deletion of those others has been asked for.
    closing: BTreeMap<(Arc<str>, Key), bool>,
    /// The uids of removed objects whose dependents have not been looked at yet.
    gone: BTreeSet<String>,
}

impl Cluster {
    /// A fresh cluster with its standard namespaces.
    pub(crate) fn new(event_log: usize, now: Timestamp) -> Self {
        let mut cluster = Self {
            store: Store::new(event_log),
            catalog: Catalog::new(),
            closing: BTreeMap::new(),
            gone: BTreeSet::new(),
        };
        let namespaces = builtin("", "namespaces");
        for name in STANDARD_NAMESPACES {
            let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            cluster
                .create(&namespaces, None, body, false, now)
                .expect("a standard namespace has a good name and is made once");
        }
        cluster
    }

    /// One object.
    pub(crate) fn get(&self, resource: &Resource, key: &Key) -> Result<&Object, Status> {
        self.store.get(&resource.stored_as, key).ok_or_else(|| Status::not_found(resource, &key.name))
    }

    /// Stores an object and notes what follows from it.
    fn put(&mut self, place: &Arc<str>, key: &Key, object: Value) -> Object {
        let object = self.store.put(place, key.clone(), object);
        if terminating(&object) && closing::waits_for_others(place, &object) {
            self.closing.entry((Arc::clone(place), key.clone())).or_insert(false);
        }
        self.refresh_catalog(place);
        object
    }

    /// Removes an object and notes what follows from that.
    fn remove(&mut self, place: &Arc<str>, key: &Key) {
        if let Some(object) = self.store.remove(place, key) {
            self.closing.remove(&(Arc::clone(place), key.clone()));
            self.gone.insert(meta(&object, "uid").into());
            self.refresh_catalog(place);
        }
    }

    fn refresh_catalog(&mut self, place: &str) {
        if place == DEFINITIONS {
            self.catalog.define(&self.store.list(DEFINITIONS, None));
        }
    }
}

#[cfg(test)]
mod tests;
