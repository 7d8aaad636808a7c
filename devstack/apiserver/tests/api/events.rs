//! Events: one object in two groups, of which the newer asks for more.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::harness::{MERGE, Place};

fn path(place: &Place) -> String {
    format!("/apis/events.k8s.io/v1/namespaces/{}/events", place.namespace)
}

fn event(place: &Place) -> Value {
    json!({
        "metadata": {"name": "a"}, "regarding": {"kind": "Pod", "name": "x", "namespace": place.namespace},
        "reason": "Because", "note": "a note", "type": "Normal", "action": "Acting",
        "reportingController": "example.org/test", "reportingInstance": "i", "eventTime": "2026-01-01T00:00:00.000000Z",
    })
}

pub(crate) async fn an_event_says_who_what_why_and_when(place: Arc<Place>) {
    let place = &*place;
    for (field, value, cause) in [
        ("eventTime", Value::Null, "eventTime"),
        ("type", json!("Grave"), "type"),
        ("reason", Value::Null, "reason"),
        ("action", Value::Null, "action"),
        ("reportingController", json!("no name"), "reportingController"),
        ("reportingInstance", Value::Null, "reportingInstance"),
        ("reason", json!("r".repeat(129)), "reason"),
        ("action", json!("a".repeat(129)), "action"),
        ("reportingInstance", json!("i".repeat(129)), "reportingInstance"),
        ("note", json!("n".repeat(1025)), "message"),
        ("regarding", json!({"kind": "Node", "name": "x"}), "involvedObject.namespace"),
        ("deprecatedCount", json!(2), "count"),
        ("series", json!({"count": 1, "lastObservedTime": "2026-01-01T00:00:00.000000Z"}), "series.count"),
    ] {
        let mut wrong = event(place);
        wrong[field] = value;
        let refused = place.post(&path(place), &wrong).await;
        refused.refused(422, "Invalid", &[cause], &format!("{field}: {}", wrong[field]));
    }
    let mut longest = event(place);
    longest["note"] = "n".repeat(1024).into();
    longest["series"] = json!({"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"});
    place.post(&path(place), &longest).await.expect(201, "an event that happened twice already");
    let elsewhere =
        json!({"metadata": {"name": "b"}, "involvedObject": {"namespace": "default", "name": "x"}});
    let refused = place.post(&place.core("events"), &elsewhere).await;
    refused.refused(422, "Invalid", &["involvedObject.namespace"], "an event about another namespace");
}

pub(crate) async fn what_an_event_said_changes_through_the_older_group_alone(place: Arc<Place>) {
    let place = &*place;
    place.post(&path(place), &event(place)).await.expect(201, "an event");
    let newer = format!("{}/a", path(place));
    for (field, value, cause) in [
        ("note", json!("another note"), "message"),
        ("reason", json!("Why"), "reason"),
        ("type", json!("Warning"), "type"),
        ("reportingInstance", json!("j"), "reportingInstance"),
    ] {
        let refused = place.patch(&newer, MERGE, &json!({field: value})).await;
        refused.refused(422, "Invalid", &[cause], field);
    }
    let series = |count: u32| json!({"count": count, "lastObservedTime": "2026-01-01T00:00:01.000000Z"});
    let once = place.patch(&newer, MERGE, &json!({"series": series(1)})).await;
    once.refused(422, "Invalid", &["series.count"], "a series of one");
    place.patch(&newer, MERGE, &json!({"series": series(2)})).await.expect(200, "a series");
    let change = json!({"message": "another note", "series": series(3)});
    place.patch(&place.core("events/a"), MERGE, &change).await.expect(200, "the older group");
    let shown = place.get(&newer).await.expect(200, "the event");
    assert_eq!((&shown["note"], &shown["series"]["count"]), (&json!("another note"), &json!(3)));
}

pub(crate) async fn an_event_reads_the_same_in_both_groups(place: Arc<Place>) {
    let place = &*place;
    let newer = path(place);
    place.post(&newer, &event(place)).await.expect(201, "an event");
    let older = place.get(&place.core("events/a")).await.expect(200, "the same event");
    let given = [
        &older["message"],
        &older["involvedObject"]["name"],
        &older["reportingComponent"],
        &older["apiVersion"],
    ];
    assert_eq!(given, ["a note", "x", "example.org/test", "v1"]);
    for path in [
        place.core("events?fieldSelector=involvedObject.name=x"),
        format!("{newer}?fieldSelector=regarding.name=x"),
    ] {
        let list = place.get(&path).await.expect(200, &path);
        assert_eq!(list["items"].as_array().map(Vec::len), Some(1), "{path}");
    }
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    let patched = place.patch(&format!("{newer}/a"), MERGE, &labels).await.expect(200, "patch");
    assert_eq!((&patched["note"], &patched["metadata"]["labels"]["a"]), (&json!("a note"), &json!("b")));
}
