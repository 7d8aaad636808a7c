//! `dryRun=All`: the answer of a write, and no write.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::harness::{Answer, JSON, MERGE, Place, STRATEGIC};
use crate::rows::{Row, made, rows};

const DRY: &str = "dryRun=All";

fn version(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().unwrap_or_default()
}

/// Returns a label. Tests compare labels, which the controllers of a real server do not change.
fn label<'a>(object: &'a Value, name: &str) -> &'a Value {
    &object["metadata"]["labels"][name]
}

pub(crate) async fn a_dry_create_answers_with_what_would_be(place: Arc<Place>) {
    let place = &*place;
    for row in rows(place).await {
        let called = row.called();
        let path = format!("{}?{DRY}", row.path(place));
        let sample = row.sample(place, "a");
        let would_be = place.post(&path, &sample).await.expect(201, &called);
        assert_eq!(would_be["metadata"]["uid"].as_str().map(str::len), Some(36), "{called}");
        assert_eq!(version(&would_be), "", "{called}: what is not stored has no version");
        assert_eq!(place.get(&row.object(place, "a")).await.code, 404, "{called}");
        let put = place.put(&format!("{}?{DRY}", row.object(place, "a")), &sample).await;
        assert_eq!(put.code, if row.create_on_put { 201 } else { 404 }, "{called}: {}", put.body);
        assert_eq!(place.get(&row.object(place, "a")).await.code, 404, "{called}");
        made(place, &row, "a").await;
        let again = place.post(&path, &sample).await;
        again.refused(409, "AlreadyExists", &[], &format!("create {called} that is there"));
        let mut bad = row.sample(place, "b");
        bad["metadata"]["labels"] = json!({"a": "b c"});
        place.post(&path, &bad).await.refused(422, "Invalid", &["metadata.labels"], &called);
    }
}

pub(crate) async fn a_dry_change_answers_with_what_would_be(place: Arc<Place>) {
    let place = &*place;
    for row in rows(place).await {
        let called = row.called();
        made(place, &row, "a").await;
        let path = row.object(place, "a");
        let dry = format!("{path}?{DRY}");
        let labels = json!({"metadata": {"labels": {"dry": "patched"}}});
        let (before, would_be) = patched(place, &path, &labels).await;
        assert_eq!(
            (label(&before, "dry"), label(&would_be, "dry")),
            (&Value::Null, &json!("patched")),
            "{called}"
        );
        let mut object = place.get(&path).await.expect(200, &called);
        object["metadata"]["labels"]["dry"] = json!("replaced");
        object["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        if !row.versioned_put {
            let would_be = place.put(&dry, &object).await.expect(200, &called);
            assert_eq!(label(&would_be, "dry"), "replaced", "{called}");
        }
        assert_eq!(label(&place.get(&path).await.body, "dry"), &Value::Null, "{called}");
        let stale = json!({"metadata": {"resourceVersion": "1", "labels": {"dry": "stale"}}});
        place.patch(&dry, MERGE, &stale).await.refused(409, "Conflict", &[], &called);
        let other = json!({"metadata": {"uid": "other", "labels": {"dry": "other"}}});
        place.patch(&dry, MERGE, &other).await.refused(422, "Invalid", &["metadata.uid"], &called);
        if row.status {
            let status = json!({"status": {"conditions": [{"type": "Dry", "status": "True",
                "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "R", "message": "m"}]}});
            let would_be = place.patch(&format!("{path}/status?{DRY}"), MERGE, &status).await;
            assert!(would_be.expect(200, &called)["status"].to_string().contains("Dry"), "{called}");
            assert!(!place.get(&path).await.body["status"].to_string().contains("Dry"), "{called}");
        }
        if row.scale {
            let scale = json!({"spec": {"replicas": 7}});
            let would_be = place.patch(&format!("{path}/scale?{DRY}"), MERGE, &scale).await;
            assert_eq!(would_be.expect(200, &called)["spec"]["replicas"], 7, "{called}");
            assert_ne!(place.get(&path).await.body["spec"]["replicas"], 7, "{called}");
        }
    }
}

/// An object and what a patch would make of it, both of one version: an empty patch answers what is there.
async fn patched(place: &Place, path: &str, patch: &Value) -> (Value, Value) {
    let dry = format!("{path}?{DRY}");
    for _ in 0..20 {
        let would_be = place.patch(&dry, MERGE, patch).await.expect(200, path);
        let before = place.patch(&dry, MERGE, &json!({})).await.expect(200, path);
        if version(&before) == version(&would_be) {
            return (before, would_be);
        }
    }
    panic!("{path} never stood still");
}

pub(crate) async fn a_dry_delete_leaves_the_object(place: Arc<Place>) {
    let place = &*place;
    for row in rows(place).await {
        let called = row.called();
        made(place, &row, "a").await;
        let path = row.object(place, "a");
        for (path, body) in
            [(format!("{path}?{DRY}"), Value::Null), (path.clone(), json!({"dryRun": ["All"]}))]
        {
            place.delete(&path, &body).await.expect(200, &format!("delete {called} with {body}"));
        }
        is_untouched(place, &row).await;
        let guard = json!({"dryRun": ["All"], "preconditions": {"uid": "other"}});
        place.delete(&path, &guard).await.refused(409, "Conflict", &[], &called);
        if row.kind != "Namespace" {
            let all = format!("{}?{DRY}&labelSelector=test%3Da", row.path(place));
            place.delete(&all, &Value::Null).await.expect(200, &format!("delete all {called}"));
            is_untouched(place, &row).await;
        }
    }
}

async fn is_untouched(place: &Place, row: &Row) {
    let object = place.get(&row.object(place, "a")).await.expect(200, &row.called());
    assert!(object["metadata"]["deletionTimestamp"].is_null(), "{}: {object}", row.called());
}

pub(crate) async fn a_deletion_with_a_body_does_not_look_at_the_query(place: Arc<Place>) {
    let place = &*place;
    place.post(&place.core("configmaps"), &json!({"metadata": {"name": "a"}})).await.expect(201, "a");
    let path = place.core(&format!("configmaps/a?{DRY}&propagationPolicy=Nonsense"));
    place.delete(&path, &json!({"propagationPolicy": "Background"})).await.expect(200, "delete");
    assert_eq!(place.get(&place.core("configmaps/a")).await.code, 404, "it was no dry run");
}

pub(crate) async fn a_dry_finalize_leaves_the_namespace(place: Arc<Place>) {
    let place = &*place;
    let path = format!("/api/v1/namespaces/{}", place.namespace);
    let mut namespace = place.get(&path).await.expect(200, "the namespace");
    namespace["spec"]["finalizers"] = json!([]);
    let would_be = place.put(&format!("{path}/finalize?{DRY}"), &namespace).await.expect(200, "finalize");
    assert_eq!(would_be["spec"].get("finalizers").unwrap_or(&json!([])), &json!([]));
    let stands = place.get(&path).await.expect(200, "it stands");
    assert_eq!(stands["spec"]["finalizers"], json!(["kubernetes"]));
}

pub(crate) async fn a_dry_run_of_another_name_is_refused(place: Arc<Place>) {
    let place = &*place;
    let (all, one) = (place.core("configmaps"), place.core("configmaps/a"));
    let body = json!({"metadata": {"name": "a"}});
    place.post(&all, &body).await.expect(201, "a");
    let refused = |answer: Answer, kind: &str| {
        answer.refused(422, "Invalid", &["dryRun"], kind);
        assert_eq!(answer.body["details"]["kind"], kind);
    };
    for query in ["dryRun=Some", "dryRun=", "dryRun=All&dryRun=Some"] {
        refused(place.post(&format!("{all}?{query}"), &body).await, "CreateOptions");
        refused(place.put(&format!("{one}?{query}"), &body).await, "UpdateOptions");
        refused(place.patch(&format!("{one}?{query}"), MERGE, &json!({})).await, "PatchOptions");
        refused(place.delete(&format!("{one}?{query}"), &Value::Null).await, "DeleteOptions");
        refused(place.delete(&format!("{all}?{query}"), &Value::Null).await, "DeleteOptions");
    }
    refused(place.delete(&one, &json!({"dryRun": ["Some"]})).await, "DeleteOptions");
    place.post(&format!("{all}?{DRY}&{DRY}"), &json!({"metadata": {"name": "b"}})).await.expect(201, "twice");
    assert_eq!(place.get(&place.core("configmaps/b")).await.code, 404);
}

pub(crate) async fn a_dry_run_knows_what_is_special_to_pods(place: Arc<Place>) {
    let place = &*place;
    let finalizer = "test.example.org/a";
    let pod = |name: &str, node: Value| {
        json!({"metadata": {"name": name, "finalizers": [finalizer]},
            "spec": {"nodeName": node, "nodeSelector": {"no": "such-node"}, "containers": [{"name": "c", "image": "i:1"}]}})
    };
    place.post(&place.core("pods"), &pod("held", json!("nowhere"))).await.expect(201, "held");
    let held = place.core("pods/held");
    let hasty = json!({"gracePeriodSeconds": 0, "dryRun": ["All"]});
    let would_be = place.delete(&held, &hasty).await.expect(200, "would be deleted");
    assert!(would_be["metadata"]["deletionTimestamp"].is_string(), "{would_be}");
    assert!(place.get(&held).await.body["metadata"]["deletionTimestamp"].is_null());

    place.delete(&held, &json!({"gracePeriodSeconds": 0})).await.expect(200, "delete");
    let release = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [finalizer]}});
    let would_be = place.patch(&format!("{held}?{DRY}"), STRATEGIC, &release).await.expect(200, "release");
    assert_eq!(would_be["metadata"].get("finalizers"), None, "{would_be}");
    let stands = place.get(&held).await.expect(200, "it stands");
    assert_eq!(stands["metadata"]["finalizers"], json!([finalizer]));
    assert_eq!(version(&stands), version(&would_be));
    place.patch(&held, STRATEGIC, &release).await.expect(200, "release");

    place.post(&place.core("pods"), &pod("waits", Value::Null)).await.expect(201, "waits");
    let binding = json!({"metadata": {"name": "waits"}, "target": {"kind": "Node", "name": "n"}});
    let path = place.core(&format!("pods/waits/binding?{DRY}"));
    place.send("POST", &path, JSON, binding.to_string().into()).await.expect(201, "a dry binding");
    let waits = place.get(&place.core("pods/waits")).await.expect(200, "it waits");
    assert_eq!(waits["spec"]["nodeName"].as_str(), None);
    place.patch(&place.core("pods/waits"), STRATEGIC, &release).await.expect(200, "release");
}
