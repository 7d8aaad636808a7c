//! Writes of annotations and finalizers, each of which applies only to the object from which it was planned.

use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::ObjectMeta;
use kube::{Client, Resource, ResourceExt};
use serde_json::{Value, json};
use staffetta_handler::MetadataPatch;

use super::MigrateError;
use super::kuryr::KuryrKind;

/// The maximum number of attempts to write an object while others change it too.
const ATTEMPTS: usize = 5;

/// A change of the annotations and finalizers of one object. It is applied only if these are the same as when the change was planned.
#[derive(Clone, Debug)]
pub(crate) struct MetadataWrite {
    resource: ApiResource,
    /// The metadata of the object when the change was planned.
    planned: ObjectMeta,
    /// The annotations to set, and the finalizers to add and to remove.
    patch: MetadataPatch,
    /// The keys of the annotations and the finalizers that the write sets, for messages.
    sets: Vec<String>,
    /// The finalizers of Kuryr that the write removes.
    removes: Vec<String>,
}

impl MetadataWrite {
    /// Plans a change of a built-in object that removes the first of the finalizers `removes`, if there is one.
    pub(super) fn of<K: Resource<DynamicType = ()>>(object: &K, removes: &[String]) -> Self {
        Self::new(ApiResource::erase::<K>(&()), object.meta(), removes)
    }

    /// Plans the removal of the finalizers `removes` from a custom resource of Kuryr.
    pub(super) fn of_kuryr(kind: KuryrKind, object: &DynamicObject, removes: &[String]) -> Self {
        Self::new(kind.resource(), object.meta(), removes)
    }

    /// Creates a write that removes the finalizers `removes` from the object whose metadata is `planned`. The write fails if these metadata
    /// have changed since.
    fn new(resource: ApiResource, planned: &ObjectMeta, removes: &[String]) -> Self {
        let patch = removes.first().map_or_else(MetadataPatch::default, |finalizer| {
            MetadataPatch::default().remove_finalizer(finalizer)
        });
        Self {
            resource,
            planned: planned.clone(),
            patch: patch.claim(),
            sets: Vec::new(),
            removes: removes.to_owned(),
        }
    }

    /// Also sets an annotation, unless the object has this value.
    #[must_use]
    pub(super) fn annotate(mut self, key: &str, value: &str) -> Self {
        let present = self.planned.annotations.as_ref().and_then(|annotations| annotations.get(key));
        if present.is_none_or(|present| present != value) {
            self.patch = self.patch.annotate(key, value);
            self.sets.push(key.to_owned());
        }
        self
    }

    /// Also adds a finalizer, unless the object has it or is being deleted, when the server accepts no further one.
    #[must_use]
    pub(super) fn add_finalizer(mut self, finalizer: &str) -> Self {
        let has = self.planned.finalizers.iter().flatten().any(|present| present == finalizer);
        if !has && self.planned.deletion_timestamp.is_none() {
            self.patch = self.patch.add_finalizer(finalizer);
            self.sets.push(finalizer.to_owned());
        }
        self
    }

    /// Returns `true` if the write changes nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.sets.is_empty() && self.removes.is_empty()
    }

    /// Returns the change in a few words, for the plan that the command prints.
    pub(super) fn describe(&self) -> String {
        let of = |verb: &str, names: &[String]| {
            (!names.is_empty()).then(|| format!("{verb} {}", names.join(" and ")))
        };
        let words = [of("write", &self.sets), of("remove", &self.removes)];
        words.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// Makes the change, unless the object is gone. Fails if its UID, annotations, finalizers or deletion have changed since the change
    /// was planned. Other changes, such as those of its status, are no obstacle.
    pub(super) async fn apply(&self, client: &Client) -> Result<(), MigrateError> {
        let name = self.planned.name.as_deref().unwrap_or_default();
        let api: Api<DynamicObject> = match &self.planned.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &self.resource),
            None => Api::all_with(client.clone(), &self.resource),
        };
        for _ in 0..ATTEMPTS {
            let Some(current) = api.get_metadata_opt(name).await.map_err(MigrateError::api)? else {
                return Ok(());
            };
            if !self.is_planned_for(&current.metadata) {
                return Err(MigrateError::Changed);
            }
            let mut object = DynamicObject::new(name, &self.resource);
            object.metadata = current.metadata;
            match api.patch_metadata(name, &PatchParams::default(), &self.body(&object)).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
                result => return result.map(drop).map_err(MigrateError::api),
            }
        }
        Err(MigrateError::Changed)
    }

    /// Returns `true` if `current` has the UID, annotations, finalizers and deletion for which the write was planned.
    fn is_planned_for(&self, current: &ObjectMeta) -> bool {
        let planned = &self.planned;
        (&planned.uid, &planned.annotations, &planned.finalizers)
            == (&current.uid, &current.annotations, &current.finalizers)
            && planned.deletion_timestamp.is_some() == current.deletion_timestamp.is_some()
    }

    /// Returns the body of the patch: a strategic merge patch for built-in kinds, a merge patch with the whole list of finalizers and the
    /// resourceVersion for custom resources, which do not support strategic merge patches.
    fn body(&self, object: &DynamicObject) -> Patch<Value> {
        if self.resource.group != "openstack.org" {
            return Patch::Strategic(json!(self.patch.body(object)));
        }
        let mut kept = object.finalizers().to_vec();
        kept.retain(|finalizer| !self.removes.contains(finalizer));
        let meta = object.meta();
        Patch::Merge(json!({ "metadata":
            { "uid": meta.uid, "resourceVersion": meta.resource_version, "finalizers": kept } }))
    }
}
