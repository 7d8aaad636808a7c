//! An index of the owners of objects, so that the dependents of an owner are found without a search of all objects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::object::{Key, list};

/// From the uid of an owner to its dependents.
#[derive(Default)]
pub(super) struct Owners {
    dependents: BTreeMap<String, BTreeSet<(Arc<str>, Key)>>,
}

impl Owners {
    pub(super) fn note(&mut self, resource: &Arc<str>, key: &Key, object: &Value) {
        for uid in owner_uids(object) {
            self.dependents.entry(uid.into()).or_default().insert((Arc::clone(resource), key.clone()));
        }
    }

    pub(super) fn forget(&mut self, resource: &Arc<str>, key: &Key, object: &Value) {
        for uid in owner_uids(object) {
            if let Some(dependents) = self.dependents.get_mut(uid) {
                dependents.remove(&(Arc::clone(resource), key.clone()));
                if dependents.is_empty() {
                    self.dependents.remove(uid);
                }
            }
        }
    }

    pub(super) fn dependents(&self, uid: &str) -> Vec<(Arc<str>, Key)> {
        self.dependents.get(uid).map(|found| found.iter().cloned().collect()).unwrap_or_default()
    }
}

fn owner_uids(object: &Value) -> impl Iterator<Item = &str> {
    list(&object["metadata"]["ownerReferences"]).iter().filter_map(|owner| owner["uid"].as_str())
}
