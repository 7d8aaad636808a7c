//! Cascading deletion: of the content of a namespace, the objects of a `CustomResourceDefinition`, and the dependents of an
//! owner. In a real cluster, controllers do this a moment later; here it is complete when the request returns.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Cluster, DEFINITIONS, DeleteOptions, NAMESPACES};
use crate::object::{Key, finalizers, list, map_mut, meta, meta_mut};
use crate::table::Resource;

/// The finalizers of the garbage collector.
pub(super) const ORPHAN: &str = "orphan";
pub(super) const FOREGROUND: &str = "foregroundDeletion";

/// Does a terminating object of this place wait for others to end?
pub(super) fn waits_for_others(place: &str, object: &Value) -> bool {
    place == NAMESPACES
        || place == DEFINITIONS
        || finalizers(object).iter().any(|finalizer| [ORPHAN, FOREGROUND].contains(finalizer))
}

/// May the object end as far as its content is concerned? A namespace and a definition end only when they are closed.
pub(super) fn may_end(place: &str, object: &Value) -> bool {
    match place {
        NAMESPACES => list(&object["spec"]["finalizers"]).is_empty(),
        DEFINITIONS => false,
        _ => true,
    }
}

/// Sets the status of a namespace or definition whose deletion began.
pub(super) fn announce(place: &str, object: &mut Value) {
    if place == NAMESPACES {
        map_mut(object).insert("status".into(), json!({"phase": "Terminating"}));
    }
    if place == NAMESPACES || place == DEFINITIONS {
        meta_mut(object).remove("deletionGracePeriodSeconds");
    }
}

impl Cluster {
    /// Cleans up until nothing follows any more.
    pub(super) fn clean_up(&mut self, now: Timestamp) {
        loop {
            while let Some(uid) = self.gone.pop_first() {
                self.release_dependents(&uid, now);
            }
            let before = self.store.revision();
            let closing: Vec<_> = self.closing.iter().map(|(at, asked)| (at.clone(), *asked)).collect();
            for ((place, at), asked) in closing {
                self.close(&place, &at, asked, now);
            }
            if self.store.revision() == before {
                return;
            }
        }
    }

    fn close(&mut self, place: &Arc<str>, at: &Key, asked: bool, now: Timestamp) {
        let Some(object) = self.store.get(place, at).cloned() else { return };
        if !asked {
            self.closing.insert((Arc::clone(place), at.clone()), true);
            for (place, at) in self.content(place, at, &object) {
                self.delete_quietly(&place, &at, now);
            }
        }
        let held = finalizers(&object);
        if &**place == NAMESPACES || &**place == DEFINITIONS {
            match self.is_closed(place, at) {
                true if held.is_empty() => self.remove(place, at),
                true if !may_end(place, &object) && &**place == NAMESPACES => {
                    self.tell_empty(place, at, &object);
                }
                _ => {}
            }
        } else if held.contains(&ORPHAN) {
            for (place, at) in self.store.dependents(meta(&object, "uid")) {
                self.drop_owner(&place, &at, meta(&object, "uid"));
            }
            self.let_go(place, at, ORPHAN);
        } else if held.contains(&FOREGROUND) && !self.is_blocked(meta(&object, "uid")) {
            self.let_go(place, at, FOREGROUND);
        }
    }

    /// A namespace that is empty, and which somebody's finalizer still holds, has none of ours any more.
    fn tell_empty(&mut self, place: &Arc<str>, at: &Key, object: &Value) {
        let mut object = object.clone();
        map_mut(&mut object["spec"]).remove("finalizers");
        self.put(place, at, object);
    }

    /// Lists the objects that must be deleted first.
    fn content(&self, place: &str, at: &Key, object: &Value) -> Vec<(Arc<str>, Key)> {
        if place == NAMESPACES {
            return self.store.contents(&at.name);
        }
        if place == DEFINITIONS {
            let of = Arc::<str>::from(at.name.as_str());
            let objects = self.store.list(&of, None);
            return objects.iter().map(|object| (Arc::clone(&of), crate::object::key(object))).collect();
        }
        if finalizers(object).contains(&FOREGROUND) {
            return self.store.dependents(meta(object, "uid"));
        }
        Vec::new()
    }

    fn is_closed(&self, place: &str, at: &Key) -> bool {
        if place == NAMESPACES {
            self.store.contents(&at.name).is_empty()
        } else {
            self.store.list(&at.name, None).is_empty()
        }
    }

    fn is_blocked(&self, uid: &str) -> bool {
        self.store.dependents(uid).iter().any(|(place, at)| {
            self.store.get(place, at).is_some_and(|dependent| {
                let owners = list(&dependent["metadata"]["ownerReferences"]);
                owners.iter().any(|owner| owner["uid"] == uid && owner["blockOwnerDeletion"] == true)
            })
        })
    }

    /// Takes a finalizer of ours away, and the object with the last one.
    fn let_go(&mut self, place: &Arc<str>, at: &Key, finalizer: &str) {
        let Some(object) = self.store.get(place, at) else { return };
        let mut object = Value::clone(object);
        let left: Vec<_> =
            finalizers(&object).into_iter().filter(|held| *held != finalizer).map(Value::from).collect();
        self.closing.remove(&(Arc::clone(place), at.clone()));
        if left.is_empty()
            && object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or_default() == 0
        {
            self.remove(place, at);
            return;
        }
        if left.is_empty() {
            meta_mut(&mut object).remove("finalizers");
        } else {
            meta_mut(&mut object).insert("finalizers".into(), left.into());
        }
        self.put(place, at, object);
    }

    /// An owner is gone: those who have no other follow it.
    fn release_dependents(&mut self, uid: &str, now: Timestamp) {
        for (place, at) in self.store.dependents(uid) {
            let Some(dependent) = self.store.get(&place, &at).cloned() else { continue };
            let others =
                list(&dependent["metadata"]["ownerReferences"]).iter().filter(|owner| owner["uid"] != uid);
            if others.into_iter().any(|owner| self.is_there(&at.namespace, owner)) {
                self.drop_owner(&place, &at, uid);
            } else {
                self.delete_quietly(&place, &at, now);
            }
        }
    }

    /// A dependent that comes when its owner has gone already.
    pub(super) fn collect_if_orphaned(&mut self, resource: &Resource, object: &Value, now: Timestamp) {
        let owners = list(&object["metadata"]["ownerReferences"]);
        let known = |owner: &&Value| self.owner_resource(owner).is_some();
        let namespace = meta(object, "namespace");
        if !owners.is_empty()
            && owners.iter().all(|owner| known(&owner))
            && !owners.iter().any(|owner| self.is_there(namespace, owner))
        {
            self.delete_quietly(&resource.stored_as, &crate::object::key(object), now);
        }
    }

    fn owner_resource(&self, owner: &Value) -> Option<&Arc<Resource>> {
        self.catalog.of_kind(owner["apiVersion"].as_str()?, owner["kind"].as_str()?)
    }

    /// Is this owner there? One of a kind that nobody serves cannot be looked up and is taken to be.
    fn is_there(&self, namespace: &str, owner: &Value) -> bool {
        let Some(resource) = self.owner_resource(owner) else { return true };
        let text = |field: &str| owner[field].as_str().unwrap_or_default();
        let namespaced = resource.has(crate::table::Trait::Namespaced);
        let at = Key::new(if namespaced { namespace } else { "" }, text("name"));
        self.store.has_uid(&resource.stored_as, &at, text("uid"))
    }

    fn drop_owner(&mut self, place: &Arc<str>, at: &Key, uid: &str) {
        let Some(object) = self.store.get(place, at) else { return };
        let mut object = Value::clone(object);
        let left: Vec<_> = list(&object["metadata"]["ownerReferences"])
            .iter()
            .filter(|owner| owner["uid"] != uid)
            .cloned()
            .collect();
        if left.is_empty() {
            meta_mut(&mut object).remove("ownerReferences");
        } else {
            meta_mut(&mut object).insert("ownerReferences".into(), left.into());
        }
        self.put(place, at, object);
    }

    /// A deletion that nobody waits for. What has gone meanwhile needs none.
    fn delete_quietly(&mut self, place: &Arc<str>, at: &Key, now: Timestamp) {
        if let Some(resource) = self.catalog.stored_as(place).cloned()
            && self.store.get(place, at).is_some()
        {
            let asked = self.delete_one(&resource, at, &DeleteOptions::default(), now);
            debug_assert!(asked.is_ok(), "the object is there and no precondition was named");
        }
    }
}

impl Cluster {
    /// PUT to `namespaces/NAME/finalize`: the one way to change the finalizers of a namespace's spec. With `dry_run` the
    /// answer is the same and nothing is stored.
    pub(crate) fn finalize_namespace(
        &mut self,
        at: &Key,
        body: &Value,
        dry_run: bool,
        now: Timestamp,
    ) -> Result<crate::object::Object, crate::status::Status> {
        let namespaces = crate::table::builtin("", "namespaces");
        let mut object = Value::clone(self.get(&namespaces, at)?);
        object["spec"] = body["spec"].clone();
        if dry_run {
            return Ok(Arc::new(object));
        }
        let object = self.put(&namespaces.stored_as, at, object);
        self.clean_up(now);
        Ok(object)
    }
}
