//! Removes our finalizers from objects, and deletes the virtual nodes.

use k8s_openapi::api::core::v1::Node;
use kube::api::{
    DeleteParams, DynamicObject, ListParams, PartialObjectMeta, Patch, PatchParams, Preconditions,
};
use kube::core::ApiResource;
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use staffetta_handler::{CLUSTER_ANNOTATION, CLUSTER_LABEL, HANDLER_LABEL, causes};

use super::{UninstallError, api_error, is_ours};
use crate::base::connect::{self, answer, is_missing, none_if_missing};
use crate::operate::cleanup::ObjectResult;

/// The maximum number of passes over the objects of a kind. A further pass is needed when another program has changed an object meanwhile.
const PASSES: usize = 5;

/// Removes our finalizers from all objects of a kind that the installation `cluster_id` manages if `apply` is set, otherwise lists the
/// objects that have them. Without a `staffetta.dev/cluster` annotation, an object counts as its own. Fails if the objects
/// cannot be listed; a finalizer that cannot be removed is in the result.
pub(super) async fn remove_finalizers(
    client: &Client,
    resource: &ApiResource,
    cluster_id: &str,
    apply: bool,
) -> Result<Vec<ObjectResult>, UninstallError> {
    let mut done = Vec::new();
    for pass in 1..=PASSES {
        let mut again = false;
        // Each object that failed before is tried again.
        done.retain(|object: &ObjectResult| object.is_ok);
        for object in list(client, resource, ListParams::default()).await? {
            let (ours, kept): (Vec<_>, Vec<_>) =
                object.finalizers().iter().map(String::as_str).partition(|finalizer| is_ours(finalizer));
            let manager = object.annotations().get(CLUSTER_ANNOTATION);
            if ours.is_empty() || manager.is_some_and(|manager| manager != cluster_id) {
                continue;
            }
            let metadata = json!({ "uid": object.uid(), "resourceVersion": object.resource_version(), "finalizers": kept });
            let patch = Patch::Merge(json!({ "metadata": metadata }));
            let api: Api<DynamicObject> = match object.namespace() {
                Some(namespace) => Api::namespaced_with(client.clone(), &namespace, resource),
                None => Api::all_with(client.clone(), resource),
            };
            let written = if apply {
                let name = object.name_any();
                answer(api.patch_metadata(&name, &PatchParams::default(), &patch)).await.map(drop)
            } else {
                Ok(())
            };
            match written {
                Err(kube::Error::Api(status)) if status.code == 409 && pass < PASSES => again = true,
                Err(error) if is_missing(&error) => {}
                written => done.push(outcome(&resource.kind, &object, written, &ours.join(", "), apply)),
            }
        }
        if !again {
            break;
        }
    }
    Ok(done)
}

/// Deletes the virtual nodes that `handlers` of the installation `cluster_id` provide if `apply` is set, otherwise lists them. Fails if the nodes cannot be listed;
/// a node that cannot be deleted is in the result.
pub(super) async fn delete_nodes(
    client: &Client,
    cluster_id: &str,
    handlers: &[&str],
    apply: bool,
) -> Result<Vec<ObjectResult>, UninstallError> {
    if handlers.is_empty() {
        return Ok(Vec::new());
    }
    let resource = ApiResource::erase::<Node>(&());
    let selector = format!("{HANDLER_LABEL} in ({}),{CLUSTER_LABEL}={cluster_id}", handlers.join(","));
    let ours = ListParams::default().labels(&selector);
    let nodes = Api::<Node>::all(client.clone());
    let mut done = Vec::new();
    for node in list(client, &resource, ours).await? {
        let deleted = if apply {
            let exactly = Preconditions { uid: node.uid(), resource_version: None };
            let exactly = DeleteParams::default().preconditions(exactly);
            answer(nodes.delete(&node.name_any(), &exactly)).await.map(drop)
        } else {
            Ok(())
        };
        match deleted {
            Err(error) if is_missing(&error) => {}
            deleted => done.push(outcome("Node", &node, deleted, "its node", apply)),
        }
    }
    Ok(done)
}

/// Lists the metadata of all objects of a kind that `parameters` select; none if the kind is not served. Fails if they cannot be read.
async fn list(
    client: &Client,
    resource: &ApiResource,
    parameters: ListParams,
) -> Result<Vec<PartialObjectMeta<DynamicObject>>, UninstallError> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), resource);
    let listed = connect::list(parameters, async |page| api.list_metadata(page).await).await;
    none_if_missing(listed).map_err(|error| api_error(format!("read {}", resource.plural), error))
}

/// Returns the row of the table for one object: `what` was removed (with `apply`), would be removed (without), or could not be removed.
fn outcome(
    kind: &str,
    object: &PartialObjectMeta<DynamicObject>,
    result: Result<(), kube::Error>,
    what: &str,
    apply: bool,
) -> ObjectResult {
    let (is_ok, result) = match result {
        Ok(()) if apply => (true, format!("{what} is removed")),
        Ok(()) => (true, format!("{what} would be removed")),
        Err(error) => (false, causes(&error)),
    };
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    ObjectResult { kind: kind.to_owned(), namespace, name, result, is_ok }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Method, Request, Response};
    use k8s_openapi::api::core::v1::Pod;
    use kube::client::Body;
    use parking_lot::Mutex;
    use tower::service_fn;

    use super::*;

    #[tokio::test]
    async fn an_object_that_succeeds_in_a_further_pass_has_not_failed() {
        // The first pass cannot change one pod, and finds that another program has changed the other one.
        let codes = Mutex::new(vec![409, 500]);
        let answer = move |request: Request<Body>| {
            let code = if request.method() == Method::PATCH { codes.lock().pop() } else { None };
            let pod = |name: &str| {
                let finalizers = ["staffetta.dev/vif"];
                json!({ "metadata": { "name": name, "namespace": "shop", "uid": name, "finalizers": finalizers } })
            };
            let document = match code {
                Some(code) => json!({ "status": "Failure", "message": "no", "reason": "no", "code": code }),
                None => json!({ "metadata": {}, "items": [pod("a"), pod("b")] }),
            };
            let response = Response::builder().status(code.unwrap_or(200));
            std::future::ready(Ok::<_, Infallible>(
                response.body(Body::from(document.to_string().into_bytes())).unwrap(),
            ))
        };
        let client = Client::new(service_fn(answer), "default");
        let pods = remove_finalizers(&client, &ApiResource::erase::<Pod>(&()), "east", true).await.unwrap();
        let rows: Vec<_> = pods.iter().map(|pod| (pod.name.as_str(), pod.is_ok)).collect();
        assert_eq!(rows, [("a", true), ("b", true)]);
    }

    #[tokio::test]
    async fn objects_of_another_installation_keep_their_finalizers() {
        let server = async |request: Request<Body>| {
            let pod = |name: &str, annotations: serde_json::Value| {
                json!({ "metadata": { "name": name, "namespace": "shop", "uid": name,
                    "annotations": annotations, "finalizers": ["staffetta.dev/vif"] } })
            };
            assert!(request.method() == Method::GET || !request.uri().path().contains("/west"));
            let of = |id: &str| json!({ CLUSTER_ANNOTATION: id });
            let items = [pod("east", of("east")), pod("west", of("west")), pod("unmarked", json!({}))];
            let body = json!({ "metadata": {}, "items": items }).to_string().into_bytes();
            Ok::<_, Infallible>(Response::new(Body::from(body)))
        };
        let client = Client::new(service_fn(server), "default");
        let pods = remove_finalizers(&client, &ApiResource::erase::<Pod>(&()), "east", true).await.unwrap();
        let names: Vec<_> = pods.iter().map(|pod| pod.name.as_str()).collect();
        assert_eq!(names, ["east", "unmarked"]);
    }
}
