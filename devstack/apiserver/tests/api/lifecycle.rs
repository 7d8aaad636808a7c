//! Ends that take others along.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::harness::{MERGE, Place};
use crate::rows::{DEFINITIONS, rows};

pub(crate) async fn a_namespace_ends_with_its_content(place: Arc<Place>) {
    let place = &*place;
    let name = format!("{}-a", place.word);
    let namespace = format!("/api/v1/namespaces/{name}");
    let made =
        place.post("/api/v1/namespaces", &json!({"metadata": {"name": name}})).await.expect(201, "namespace");
    assert_eq!(made["status"]["phase"], "Active");
    assert_eq!(made["metadata"]["labels"]["kubernetes.io/metadata.name"], name);
    assert_eq!(made["spec"]["finalizers"], json!(["kubernetes"]));
    let maps = format!("{namespace}/configmaps");
    let held = json!({"metadata": {"name": "held", "finalizers": ["test.example.org/a"]}});
    place.post(&maps, &held).await.expect(201, "held");
    place.post(&maps, &json!({"metadata": {"name": "free"}})).await.expect(201, "free");
    let closing = place.delete(&namespace, &Value::Null).await.expect(200, "delete");
    assert_eq!(closing["status"]["phase"], "Terminating");
    assert!(closing["metadata"]["deletionTimestamp"].is_string());
    let late = place.post(&maps, &json!({"metadata": {"name": "late"}})).await;
    late.refused(403, "Forbidden", &["metadata.namespace"], "create in a namespace that ends");
    assert_eq!(late.body["details"]["causes"][0]["reason"], "NamespaceTerminating");
    let free = format!("{maps}/free");
    place.until("the free content is gone", || async { place.get(&free).await.code == 404 }).await;
    assert_eq!(place.get(&namespace).await.code, 200, "the held content holds the namespace");
    let release = json!({"metadata": {"finalizers": null}});
    place
        .until("the held content is marked", || async {
            place.get(&format!("{maps}/held")).await.body["metadata"]["deletionTimestamp"].is_string()
        })
        .await;
    place.patch(&format!("{maps}/held"), MERGE, &release).await.expect(200, "release");
    place.until("the namespace is gone", || async { place.get(&namespace).await.code == 404 }).await;
}

pub(crate) async fn a_namespace_with_a_finalizer_says_that_it_is_empty_and_waits(place: Arc<Place>) {
    let place = &*place;
    let name = format!("{}-held", place.word);
    let namespace = format!("/api/v1/namespaces/{name}");
    let held = json!({"metadata": {"name": name, "finalizers": ["test.example.org/a"]}});
    place.post("/api/v1/namespaces", &held).await.expect(201, "namespace");
    let map = format!("{namespace}/configmaps/last");
    let last = json!({"metadata": {"name": "last", "finalizers": ["test.example.org/a"]}});
    place.post(&format!("{namespace}/configmaps"), &last).await.expect(201, "last");
    place.delete(&namespace, &Value::Null).await.expect(200, "delete");
    place
        .until("the content is marked", || async {
            place.get(&map).await.body["metadata"]["deletionTimestamp"].is_string()
        })
        .await;
    let spec = place.get(&namespace).await.expect(200, "it has content")["spec"].clone();
    assert_eq!(spec["finalizers"], json!(["kubernetes"]));
    let release = json!({"metadata": {"finalizers": null}});
    place.patch(&map, MERGE, &release).await.expect(200, "release the content");
    place
        .until("the namespace says that it is empty", || async {
            place.get(&namespace).await.body["spec"]["finalizers"].is_null()
        })
        .await;
    assert_eq!(place.get(&namespace).await.code, 200, "the finalizer holds it");
    place.patch(&namespace, MERGE, &release).await.expect(200, "release the namespace");
    place.until("the namespace is gone", || async { place.get(&namespace).await.code == 404 }).await;
}

/// Two config maps, the second owned by the first.
async fn family(place: &Place) -> (String, String) {
    let owner = place
        .post(&place.core("configmaps"), &json!({"metadata": {"name": "owner"}}))
        .await
        .expect(201, "owner");
    let reference = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true,
    });
    let dependent = json!({"metadata": {"name": "dependent", "ownerReferences": [reference]}});
    place.post(&place.core("configmaps"), &dependent).await.expect(201, "dependent");
    (place.core("configmaps/owner"), place.core("configmaps/dependent"))
}

pub(crate) async fn dependents_follow_their_owner(place: Arc<Place>) {
    let place = &*place;
    for policy in
        [Value::Null, json!({"propagationPolicy": "Background"}), json!({"propagationPolicy": "Foreground"})]
    {
        let (owner, dependent) = family(place).await;
        place.delete(&owner, &policy).await.expect(200, "delete the owner");
        for path in [&dependent, &owner] {
            place
                .until(&format!("{path} is gone ({policy})"), || async { place.get(path).await.code == 404 })
                .await;
        }
    }
    let (owner, _) = family(place).await;
    let refused = place.delete(&owner, &json!({"propagationPolicy": "Sideways"})).await;
    refused.refused(422, "Invalid", &["propagationPolicy"], "no policy");
}

pub(crate) async fn orphans_stay_without_their_owner(place: Arc<Place>) {
    let place = &*place;
    let (owner, dependent) = family(place).await;
    place.delete(&owner, &json!({"propagationPolicy": "Orphan"})).await.expect(200, "delete the owner");
    place.until("the owner is gone", || async { place.get(&owner).await.code == 404 }).await;
    let left = place.get(&dependent).await.expect(200, "the orphan");
    assert_eq!(left["metadata"].get("ownerReferences"), None);
}

pub(crate) async fn a_definition_is_served_and_takes_its_objects_along(place: Arc<Place>) {
    let place = &*place;
    let widgets = rows(place).await.pop().unwrap();
    let definition = format!("{DEFINITIONS}/widgets.{}", place.group());
    let stored = place.get(&definition).await.expect(200, "definition");
    assert_eq!(stored["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(stored["status"]["acceptedNames"]["kind"], "Widget");
    let path = widgets.object(place, "a");
    let sample = widgets.sample(place, "a");
    place.post(&widgets.path(place), &sample).await.expect(201, "a widget");
    place.delete(&definition, &Value::Null).await.expect(200, "delete the definition");
    place.until("the definition is gone", || async { place.get(&definition).await.code == 404 }).await;
    place.until("widgets are not served", || async { place.get(&path).await.code == 404 }).await;
    let group = format!("/apis/{}", place.group());
    place.until("the group is gone", || async { place.get(&group).await.code == 404 }).await;
}
