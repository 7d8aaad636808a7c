//! API requests of a controller as data: a controller decides them, and the [shell](crate::shell) sends them.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Request;
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};

/// A request of the API.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) resource: ApiResource,
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
    pub(crate) verb: Verb,
    /// The resourceVersion of the object when the call was decided; none when it did not exist.
    pub(crate) seen: Option<String>,
}

/// The operation on the object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verb {
    Create(Value),
    Replace(Value),
    /// A strategic merge patch of the object or of its subresource.
    Patch {
        subresource: Option<&'static str>,
        body: Value,
    },
    /// By the uid, so that a successor of the same name is left alone. Zero ends a pod at once.
    Delete {
        uid: String,
        grace_period_seconds: Option<u32>,
    },
    /// Gives a pod its node.
    Bind(Value),
}

impl Call {
    pub(crate) fn create<K: Resource<DynamicType = ()> + Serialize>(object: &K) -> Self {
        Self::about(object, Verb::Create(plain(object)))
    }

    /// Writes the whole object; refused if it is not any more as it was seen.
    pub(crate) fn replace<K: Resource<DynamicType = ()> + Serialize>(seen: &K, object: &K) -> Self {
        let mut body = plain(object);
        body["metadata"]["resourceVersion"] = json!(seen.meta().resource_version);
        Self::about(seen, Verb::Replace(body))
    }

    /// Changes the object; refused if it is not any more as it was seen.
    pub(crate) fn patch<K: Resource<DynamicType = ()>>(object: &K, mut body: Value) -> Self {
        let meta = object.meta();
        body["metadata"] = json!({ "uid": meta.uid, "resourceVersion": meta.resource_version });
        Self::about(object, Verb::Patch { subresource: None, body })
    }

    pub(crate) fn status<K: Resource<DynamicType = ()>>(object: &K, status: impl Serialize) -> Self {
        let body = json!({ "metadata": { "uid": object.meta().uid }, "status": plain(&status) });
        Self::about(object, Verb::Patch { subresource: Some("status"), body })
    }

    pub(crate) fn delete<K: Resource<DynamicType = ()>>(
        object: &K,
        grace_period_seconds: Option<u32>,
    ) -> Self {
        let uid = object.meta().uid.clone().unwrap_or_default();
        Self::about(object, Verb::Delete { uid, grace_period_seconds })
    }

    pub(crate) fn bind(pod: &Pod, node: &str) -> Self {
        let body = json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": { "name": pod.name_any(), "namespace": pod.namespace(), "uid": pod.metadata.uid },
            "target": { "apiVersion": "v1", "kind": "Node", "name": node },
        });
        Self::about(pod, Verb::Bind(body))
    }

    fn about<K: Resource<DynamicType = ()>>(object: &K, verb: Verb) -> Self {
        Self {
            resource: ApiResource::erase::<K>(&()),
            namespace: object.namespace(),
            name: object.name_any(),
            verb,
            seen: object.meta().resource_version.clone(),
        }
    }

    /// The request as it is sent.
    pub(crate) fn request(&self) -> Result<http::Request<Vec<u8>>, kube::core::request::Error> {
        let request = Request::new(DynamicObject::url_path(&self.resource, self.namespace.as_deref()));
        let name = self.name.as_str();
        let (post, patching) = (PostParams::default(), PatchParams::default());
        let bytes = |body: &Value| body.to_string().into_bytes();
        match &self.verb {
            Verb::Create(body) => request.create(&post, bytes(body)),
            Verb::Replace(body) => request.replace(name, &post, bytes(body)),
            Verb::Patch { subresource: None, body } => {
                request.patch(name, &patching, &Patch::Strategic(body))
            }
            Verb::Patch { subresource: Some(subresource), body } => {
                request.patch_subresource(subresource, name, &patching, &Patch::Strategic(body))
            }
            Verb::Delete { uid, grace_period_seconds } => {
                let preconditions = Some(Preconditions { uid: Some(uid.clone()), resource_version: None });
                let grace_period_seconds = *grace_period_seconds;
                let options =
                    DeleteParams { grace_period_seconds, preconditions, ..DeleteParams::background() };
                request.delete(name, &options)
            }
            Verb::Bind(body) => request.create_subresource("binding", name, &post, bytes(body)),
        }
    }
}

fn plain(object: &impl Serialize) -> Value {
    serde_json::to_value(object).expect("objects of the API are plain data")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pod;

    #[test]
    fn each_verb_goes_where_the_api_has_it() {
        let pod = pod(
            json!({ "metadata": { "namespace": "shop", "name": "web", "uid": "u", "resourceVersion": "7" } }),
        );
        let sent = |call: Call| {
            let request = call.request().unwrap();
            let (path, body) =
                (request.uri().path().to_owned(), String::from_utf8(request.body().clone()).unwrap());
            (format!("{} {path}", request.method()), serde_json::from_str::<Value>(&body).unwrap())
        };
        let (line, body) = sent(Call::bind(&pod, "node-1"));
        assert_eq!(line, "POST /api/v1/namespaces/shop/pods/web/binding");
        assert_eq!((&body["target"]["name"], &body["metadata"]["uid"]), (&json!("node-1"), &json!("u")));
        let (line, body) = sent(Call::delete(&pod, Some(0)));
        assert_eq!(line, "DELETE /api/v1/namespaces/shop/pods/web");
        assert_eq!((&body["gracePeriodSeconds"], &body["preconditions"]["uid"]), (&json!(0), &json!("u")));
        let (line, body) = sent(Call::status(&pod, json!({ "phase": "Running" })));
        assert_eq!(line, "PATCH /api/v1/namespaces/shop/pods/web/status");
        assert_eq!(body, json!({ "metadata": { "uid": "u" }, "status": { "phase": "Running" } }));
        let (line, body) = sent(Call::patch(&pod, json!({ "spec": {} })));
        assert_eq!(line, "PATCH /api/v1/namespaces/shop/pods/web");
        assert_eq!(body["metadata"], json!({ "uid": "u", "resourceVersion": "7" }));
        assert_eq!(sent(Call::create(&pod)).0, "POST /api/v1/namespaces/shop/pods");
        assert_eq!(sent(Call::replace(&pod, &pod)).0, "PUT /api/v1/namespaces/shop/pods/web");
    }
}
