//! Preconditions and conflicts of writes.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::harness::{JSON, JSON_PATCH, MERGE, Place, STRATEGIC};
use crate::rows::{Row, rows};

async fn posted(place: &Place, row: &Row, sample: &Value) -> Value {
    place.post(&row.path(place), sample).await.expect(201, &row.called())
}

pub(crate) async fn uid_and_version_guard_every_write(place: Arc<Place>) {
    let place = &*place;
    for row in rows(place).await {
        let called = row.called();
        let object = posted(place, &row, &row.sample(place, "a")).await;
        let path = row.object(place, "a");
        let patch =
            |field: &str, value: &Value| json!({"metadata": {field: value, "labels": {"guarded": "yes"}}});
        let wrong = place.patch(&path, MERGE, &patch("uid", &"other".into())).await;
        wrong.refused(422, "Invalid", &["metadata.uid"], &format!("patch another {called}"));
        place.patch(&path, MERGE, &patch("uid", &object["metadata"]["uid"])).await.expect(200, &called);
        let stale = place.patch(&path, MERGE, &patch("resourceVersion", &"1".into())).await;
        stale.refused(409, "Conflict", &[], &format!("patch a stale {called}"));
        let renamed = place.patch(&path, MERGE, &patch("name", &"other".into())).await;
        renamed.refused(400, "BadRequest", &[], &format!("patch the name of {called}"));
        for guard in [json!({"uid": "other"}), json!({"resourceVersion": "1"})] {
            let refused = place.delete(&path, &json!({"preconditions": guard})).await;
            refused.refused(409, "Conflict", &[], &format!("delete {called} if {guard}"));
        }
        let guard = json!({"preconditions": {"uid": object["metadata"]["uid"]}});
        place.delete(&path, &guard).await.expect(200, &format!("delete {called} if {guard}"));
    }
}

pub(crate) async fn finalizers_hold_an_object_until_they_are_gone(place: Arc<Place>) {
    let place = &*place;
    for row in rows(place).await {
        let called = row.called();
        let mut sample = row.sample(place, "a");
        sample["metadata"]["finalizers"] = json!(["test.example.org/a", "test.example.org/b"]);
        posted(place, &row, &sample).await;
        let path = row.object(place, "a");
        let marked = place.delete(&path, &Value::Null).await.expect(200, &called);
        assert!(marked["metadata"]["deletionTimestamp"].is_string(), "{called}: {}", marked["metadata"]);
        let more = json!({"metadata": {
            "finalizers": ["test.example.org/a", "test.example.org/b", "test.example.org/c"],
            "annotations": {"not": "written"},
        }});
        let refused = place.patch(&path, MERGE, &more).await;
        refused.refused(422, "Invalid", &["metadata.finalizers"], &format!("hold {called} longer"));
        assert_eq!(refused.body["details"]["causes"][0]["reason"], "FieldValueForbidden", "{called}");
        let one = json!({"metadata": {"finalizers": ["test.example.org/b"]}});
        let held = place.patch(&path, MERGE, &one).await.expect(200, &called);
        assert_eq!(held["metadata"]["finalizers"], one["metadata"]["finalizers"], "{called}");
        assert_eq!(held["metadata"]["annotations"].get("not"), None, "{called}");
        place.patch(&path, MERGE, &json!({"metadata": {"finalizers": null}})).await.expect(200, &called);
        place.until(&format!("{called} is gone"), || async { place.get(&path).await.code == 404 }).await;
    }
}

pub(crate) async fn annotations_have_a_limit_in_all(place: Arc<Place>) {
    let place = &*place;
    for row in rows(place).await {
        let called = row.called();
        posted(place, &row, &row.sample(place, "a")).await;
        let path = row.object(place, "a");
        let half = "x".repeat(131_000);
        let first = place.patch(&path, MERGE, &json!({"metadata": {"annotations": {"a": half}}})).await;
        first.expect(200, &called);
        let second = place
            .patch(&path, MERGE, &json!({"metadata": {"annotations": {"b": format!("{half}{half}")}}}))
            .await;
        second.refused(422, "Invalid", &["metadata.annotations"], &format!("too much on {called}"));
        assert_eq!(second.body["details"]["causes"][0]["reason"], "FieldValueTooLong", "{called}");
    }
}

pub(crate) async fn names_labels_and_finalizers_have_a_form(place: Arc<Place>) {
    let place = &*place;
    for row in rows(place).await {
        let called = row.called();
        let kinds = [
            "events",
            "leases.coordination.k8s.io",
            "mutatingwebhookconfigurations.admissionregistration.k8s.io",
        ];
        let lax = kinds.contains(&called.as_str()) || row.custom;
        posted(place, &row, &row.sample(place, "a")).await;
        let path = row.object(place, "a");
        let finalizer = place.patch(&path, MERGE, &json!({"metadata": {"finalizers": ["plain"]}})).await;
        if lax {
            finalizer.expect(200, &called);
            place.patch(&path, MERGE, &json!({"metadata": {"finalizers": null}})).await.expect(200, &called);
        } else {
            finalizer.refused(422, "Invalid", &["metadata.finalizers[0]"], &called);
        }
        let label = place.patch(&path, MERGE, &json!({"metadata": {"labels": {"a b": "c"}}})).await;
        label.refused(422, "Invalid", &["metadata.labels"], &called);
        let mut unnamed = row.sample(place, "a");
        unnamed["metadata"].as_object_mut().unwrap().remove("name");
        // A service without a name fails when it gets its address.
        if row.kind != "Service" {
            let refused = place.post(&row.path(place), &unnamed).await;
            refused.refused(422, "Invalid", &["metadata.name"], &format!("{called} without a name"));
        }
    }
}

pub(crate) async fn paths_that_lead_nowhere_are_404(place: Arc<Place>) {
    let place = &*place;
    for path in [
        place.core("nothings"),
        "/apis/apps/v9/deployments".into(),
        "/api/v1/pods/a".into(),
        "/nothing".into(),
    ] {
        assert_eq!(place.get(&path).await.code, 404, "{path}");
    }
    let empty =
        place.get("/api/v1/namespaces/no-such-namespace/pods").await.expect(200, "a list of no namespace");
    assert_eq!(empty["items"], json!([]));
    let refused = place.post("/api/v1/pods", &json!({})).await;
    refused.refused(405, "MethodNotAllowed", &[], "create in all namespaces");
    for path in ["/healthz", "/livez", "/readyz"] {
        assert_eq!(place.get(path).await.code, 200, "{path}");
    }
}

pub(crate) async fn bodies_that_are_not_objects_are_refused(place: Arc<Place>) {
    let place = &*place;
    let path = place.core("configmaps");
    for body in ["{", "[]", "{\"kind\": \"Secret\", \"apiVersion\": \"v1\", \"metadata\": {\"name\": \"a\"}}"]
    {
        let refused = place.send("POST", &path, JSON, body.into()).await;
        refused.refused(400, "BadRequest", &[], body);
    }
    let text = place.send("POST", &path, "text/plain", b"a".to_vec()).await;
    text.refused(415, "UnsupportedMediaType", &[], "text");
    place.post(&path, &json!({"metadata": {"name": "a"}})).await.expect(201, "a config map");
    let path = place.core("configmaps/a");
    for (content_type, body) in
        [(MERGE, "{"), (STRATEGIC, "["), (STRATEGIC, "[]"), (JSON_PATCH, "{}"), (JSON_PATCH, "[")]
    {
        let refused = place.send("PATCH", &path, content_type, body.into()).await;
        refused.refused(400, "BadRequest", &[], &format!("{body} as {content_type}"));
    }
    let unknown = place.send("PATCH", &path, JSON, b"{}".to_vec()).await;
    unknown.refused(415, "UnsupportedMediaType", &[], "a patch of no kind");
    let large = json!({"metadata": {"name": "b"}, "data": {"a": "x".repeat(3 * 1024 * 1024)}});
    let refused = place.post(&place.core("configmaps"), &large).await;
    assert_eq!(refused.code, 413, "{}", refused.body);
}
