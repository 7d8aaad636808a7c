//! Writes of annotations and finalizers, each of which applies only to the object from which it was planned.

use std::collections::BTreeMap;

use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::ObjectMeta;
use kube::{Client, Resource};
use serde_json::{Value, json};

use super::MigrateError;
use crate::base::connect::answer;

/// The maximum number of attempts to write an object while others change it too.
const ATTEMPTS: usize = 5;

/// A change of the annotations and finalizers of one object. It is applied only if these are the same as when the change was planned.
#[derive(Clone, Debug)]
pub(crate) struct MetadataWrite {
    resource: ApiResource,
    /// The metadata of the object when the change was planned.
    planned: ObjectMeta,
    /// The annotations that the write sets, by name.
    annotations: BTreeMap<String, String>,
    /// The finalizer that the write adds; `None` if it adds none.
    adds: Option<String>,
    /// The finalizers of Kuryr that the write removes.
    removes: Vec<String>,
}

impl MetadataWrite {
    /// Creates a write that removes the finalizers `removes` from `object`, which is of a built-in kind such as Pod.
    pub(super) fn of<K: Resource<DynamicType = ()>>(object: &K, removes: &[String]) -> Self {
        Self::new(ApiResource::erase::<K>(&()), object.meta(), removes)
    }

    /// Creates a write that removes the finalizers `removes` from the object whose metadata is `planned`. The write fails if the UID,
    /// annotations, finalizers or deletion of the object have changed since.
    pub(super) fn new(resource: ApiResource, planned: &ObjectMeta, removes: &[String]) -> Self {
        let (annotations, adds) = (BTreeMap::new(), None);
        Self { resource, planned: planned.clone(), annotations, adds, removes: removes.to_owned() }
    }

    /// Also sets an annotation, unless the object has this value.
    #[must_use]
    pub(super) fn annotate(mut self, key: &str, value: &str) -> Self {
        let present = self.planned.annotations.as_ref().and_then(|annotations| annotations.get(key));
        if present.is_none_or(|present| present != value) {
            self.annotations.insert(key.to_owned(), value.to_owned());
        }
        self
    }

    /// Also adds a finalizer, unless the object has it or is being deleted, when the server accepts no further one.
    #[must_use]
    pub(super) fn add_finalizer(mut self, finalizer: &str) -> Self {
        let has = self.planned.finalizers.iter().flatten().any(|present| present == finalizer);
        if !has && self.planned.deletion_timestamp.is_none() {
            self.adds = Some(finalizer.to_owned());
        }
        self
    }

    /// Returns `true` if the write changes nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.annotations.is_empty() && self.adds.is_none() && self.removes.is_empty()
    }

    /// Returns the change in a few words, for the plan that the command prints.
    pub(super) fn describe(&self) -> String {
        let sets: Vec<&str> = self.annotations.keys().chain(&self.adds).map(String::as_str).collect();
        let removes: Vec<&str> = self.removes.iter().map(String::as_str).collect();
        let parts = [("write", sets), ("remove", removes)].into_iter().filter(|(_, names)| !names.is_empty());
        parts.map(|(verb, names)| format!("{verb} {}", names.join(" and "))).collect::<Vec<_>>().join(", ")
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
            let current = answer(api.get_metadata_opt(name)).await.map_err(MigrateError::api)?;
            let Some(current) = current else {
                return Ok(());
            };
            if !self.is_planned_for(&current.metadata) {
                return Err(MigrateError::Changed);
            }
            let patch = Patch::Merge(self.body(&current.metadata));
            match answer(api.patch_metadata(name, &PatchParams::default(), &patch)).await {
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

    /// Returns the body of the patch of the object with the metadata `current`: a merge patch with the whole list of finalizers, which
    /// custom resources support, too. The resourceVersion makes the server reject it if the object has changed meanwhile.
    fn body(&self, current: &ObjectMeta) -> Value {
        let mut finalizers = current.finalizers.clone().unwrap_or_default();
        finalizers.retain(|finalizer| !self.removes.contains(finalizer));
        finalizers.extend(self.adds.clone());
        json!({ "metadata": { "uid": current.uid, "resourceVersion": current.resource_version,
            "annotations": self.annotations, "finalizers": finalizers } })
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response};
    use k8s_openapi::api::core::v1::Service;
    use kube::api::ListParams;
    use kube::client::Body;
    use staffetta_handler::causes;
    use tower::service_fn;

    use super::*;
    use crate::base::connect::list;

    #[test]
    fn all_finalizers_of_kuryr_are_removed_and_those_of_others_stay() {
        let theirs = ["kuryr.openstack.org/a", "kuryr.openstack.org/b"].map(str::to_owned);
        let metadata = json!({ "name": "web", "uid": "u", "resourceVersion": "7",
            "finalizers": [theirs[0], "their/own", theirs[1]] });
        let service: Service = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
        let write = MetadataWrite::of(&service, &theirs).annotate("k", "v").add_finalizer("staffetta.dev/lb");
        let expected = "write k and staffetta.dev/lb, remove kuryr.openstack.org/a and kuryr.openstack.org/b";
        assert_eq!(write.describe(), expected);
        let patch = json!({ "metadata": { "uid": "u", "resourceVersion": "7", "annotations": { "k": "v" },
            "finalizers": ["their/own", "staffetta.dev/lb"] } });
        assert_eq!(write.body(&service.metadata), patch);
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_does_not_answer_ends_a_read_and_a_write() {
        let silent =
            service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, Infallible>>());
        let client = Client::new(silent, "default");
        let service: Service = serde_json::from_value(json!({ "metadata": { "name": "web" } })).unwrap();
        let written = MetadataWrite::of(&service, &[]).annotate("k", "v").apply(&client).await;
        let api = Api::<Service>::all(client);
        let listed = list(ListParams::default(), async |page| api.list(page).await).await;
        for error in [causes(&written.unwrap_err()), causes(&listed.unwrap_err())] {
            assert!(error.contains("no answer within 30 s"), "{error}");
        }
    }
}
