//! patch, status and scale on each row.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::harness::{JSON_PATCH, MERGE, Place, STRATEGIC};
use crate::rows::{made, replaced, rows};

pub(crate) async fn merge_patch_changes_what_it_names(place: Arc<Place>) {
    let place = &*place;
    for row in rows(place).await {
        let called = row.called();
        made(place, &row, "a").await;
        let path = row.object(place, "a");
        let patch = json!({"metadata": {"annotations": {"a/b": "c", "d": "e"}}});
        place.patch(&path, MERGE, &patch).await.expect(200, &called);
        let patch = json!({"metadata": {"annotations": {"d": null}}});
        let patched = place.patch(&path, MERGE, &patch).await.expect(200, &called);
        let annotations = &patched["metadata"]["annotations"];
        assert_eq!((&annotations["a/b"], annotations.get("d")), (&json!("c"), None), "{called}");
        assert_eq!(patched["metadata"]["labels"]["test"], "a", "{called}");
        let absent = place.patch(&row.object(place, "absent"), MERGE, &patch).await;
        absent.refused(404, "NotFound", &[], &format!("patch an absent {called}"));
        let strange = place.patch(&path, MERGE, &json!({"metadata": {"labels": {"a": 1}}})).await;
        strange.refused(422, "Invalid", &["patch"], &format!("patch {called} with a number"));
    }
}

pub(crate) async fn json_patch_tests_before_it_changes(place: Arc<Place>) {
    let place = &*place;
    for row in rows(place).await {
        let called = row.called();
        made(place, &row, "a").await;
        let path = row.object(place, "a");
        let test = |value: &str| json!({"op": "test", "path": "/metadata/labels/test", "value": value});
        let change = json!({"op": "add", "path": "/metadata/labels/more", "value": "yes"});
        let patched = place.patch(&path, JSON_PATCH, &json!([test("a"), change])).await.expect(200, &called);
        assert_eq!(patched["metadata"]["labels"]["more"], "yes", "{called}");
        for failing in [
            json!([test("b"), {"op": "remove", "path": "/metadata/labels/more"}]),
            json!([{"op": "remove", "path": "/metadata/labels/nothing"}]),
        ] {
            let refused = place.patch(&path, JSON_PATCH, &failing).await;
            refused.refused(422, "Invalid", &[], &format!("patch {called} with {failing}"));
        }
        let stands = place.get(&path).await.expect(200, &called);
        assert_eq!(stands["metadata"]["labels"]["more"], "yes", "{called}");
    }
}

pub(crate) async fn strategic_merge_patch_is_for_built_in_kinds(place: Arc<Place>) {
    let place = &*place;
    for row in rows(place).await {
        let called = row.called();
        made(place, &row, "a").await;
        let path = row.object(place, "a");
        let patch = json!({"metadata": {"labels": {"$patch": "replace", "only": "this"}}});
        let answer = place.patch(&path, STRATEGIC, &patch).await;
        if row.custom {
            answer.refused(415, "UnsupportedMediaType", &[], &called);
            continue;
        }
        let labels = answer.expect(200, &called)["metadata"]["labels"].clone();
        assert_eq!((&labels["only"], labels.get("test")), (&json!("this"), None), "{called}");
    }
}

pub(crate) async fn patch_that_changes_nothing_is_no_write(place: Arc<Place>) {
    let place = &*place;
    for row in rows(place).await {
        let called = row.called();
        made(place, &row, "a").await;
        let path = row.object(place, "a");
        let patch = json!({"metadata": {"labels": {"more": "yes"}}});
        let mut last = place.patch(&path, MERGE, &patch).await.expect(200, &called);
        // The controllers of a real server may write in between; then the next attempt tells.
        for attempt in 0.. {
            let next = place.patch(&path, MERGE, &patch).await.expect(200, &called);
            if next["metadata"]["resourceVersion"] == last["metadata"]["resourceVersion"] {
                break;
            }
            assert!(attempt < 10, "{called} is written by a patch that changes nothing");
            last = next;
        }
    }
}

pub(crate) async fn status_and_spec_are_written_apart(place: Arc<Place>) {
    let place = &*place;
    for row in rows(place).await {
        let called = row.called();
        made(place, &row, "a").await;
        let path = row.object(place, "a");
        let status = format!("{path}/status");
        let condition = json!([{"type": "Test", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "R", "message": "m"}]);
        let patch = json!({"metadata": {"labels": {"more": "yes"}}, "status": {"conditions": condition}});
        if !row.status {
            place.get(&status).await.refused(404, "NotFound", &[], &format!("status of {called}"));
            continue;
        }
        let through_main = place.patch(&path, MERGE, &patch).await.expect(200, &called);
        assert_eq!(through_main["metadata"]["labels"]["more"], "yes", "{called}");
        assert!(!has_test(&through_main), "{called}: the main endpoint ignores the status");
        let before = through_main["spec"].clone();
        let patch = json!({"spec": {"paused": true, "unschedulable": true, "replicas": 7}, "status": {"conditions": condition}});
        let through_status = place.patch(&status, MERGE, &patch).await.expect(200, &called);
        assert!(has_test(&through_status), "{called}: {}", through_status["status"]);
        for field in ["paused", "unschedulable", "replicas"] {
            assert_eq!(
                through_status["spec"].get(field),
                before.get(field),
                "{called}: /status ignores the spec"
            );
        }
        place.get(&status).await.expect(200, &format!("get the status of {called}"));
    }
}

fn has_test(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.is_some_and(|conditions| conditions.iter().any(|condition| condition["type"] == "Test"))
}

pub(crate) async fn scale_is_the_replicas_alone(place: Arc<Place>) {
    let place = &*place;
    for row in rows(place).await {
        let called = row.called();
        made(place, &row, "a").await;
        let path = row.object(place, "a");
        let scale = format!("{path}/scale");
        if !row.scale {
            place.get(&scale).await.refused(404, "NotFound", &[], &format!("scale of {called}"));
            continue;
        }
        let first = place.get(&scale).await.expect(200, &called);
        assert_eq!(
            (&first["kind"], &first["apiVersion"]),
            (&json!("Scale"), &json!("autoscaling/v1")),
            "{called}"
        );
        if !row.custom {
            assert_eq!(first["status"]["selector"], "app=x", "{called}");
        }
        place.patch(&scale, MERGE, &json!({"spec": {"replicas": 2}})).await.expect(200, &called);
        let object = place.get(&path).await.expect(200, &called);
        assert_eq!(
            (&object["spec"]["replicas"], &object["metadata"]["generation"]),
            (&json!(2), &json!(2)),
            "{called}"
        );
        let negative = place.patch(&scale, MERGE, &json!({"spec": {"replicas": -1}})).await;
        let field = if row.custom { ".spec.replicas" } else { "spec.replicas" };
        negative.refused(422, "Invalid", &[field], &called);
        let mut stale = first;
        stale["spec"]["replicas"] = json!(0);
        place.put(&scale, &stale).await.refused(409, "Conflict", &[], &format!("a stale scale of {called}"));
        let scaled = replaced(place, &scale, |scale| scale["spec"]["replicas"] = json!(0)).await;
        assert_eq!(scaled["spec"]["replicas"].as_i64().unwrap_or_default(), 0, "{called}");
    }
}
