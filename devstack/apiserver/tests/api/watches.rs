//! The start of watches and their events.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::harness::{MERGE, Place, reported};

async fn config_map(place: &Place, name: &str, app: &str) {
    let body = json!({"metadata": {"name": name, "labels": {"app": app}}});
    place.post(&place.core("configmaps"), &body).await.expect(201, name);
}

async fn relabel(place: &Place, name: &str, app: &str) {
    let patch = json!({"metadata": {"labels": {"app": app}}});
    place.patch(&place.core(&format!("configmaps/{name}")), MERGE, &patch).await.expect(200, name);
}

pub(crate) async fn a_watch_resumes_where_it_is_asked_to(place: Arc<Place>) {
    let place = &*place;
    let path = place.core("configmaps?labelSelector=app");
    config_map(place, "a", "web").await;
    let version = place.version(&path).await;
    config_map(place, "b", "web").await;
    relabel(place, "a", "db").await;
    let events = place.watch(&format!("{path}&resourceVersion={version}")).await.unwrap();
    assert_eq!(reported(&events), [("ADDED", "b"), ("MODIFIED", "a")]);
    let version = events[0]["object"]["metadata"]["resourceVersion"].as_str().unwrap();
    let events = place.watch(&format!("{path}&resourceVersion={version}")).await.unwrap();
    assert_eq!(reported(&events), [("MODIFIED", "a")]);
    let events = place.watch(&format!("{path}&resourceVersion=999999999")).await.unwrap();
    assert!(events.is_empty(), "a watch from the future is silent: {events:?}");
}

pub(crate) async fn a_watch_without_a_version_begins_with_what_is_there(place: Arc<Place>) {
    let place = &*place;
    config_map(place, "a", "web").await;
    config_map(place, "b", "web").await;
    for query in ["", "&resourceVersion=0"] {
        let events = place.watch(&place.core(&format!("configmaps?labelSelector=app{query}"))).await.unwrap();
        assert_eq!(reported(&events), [("ADDED", "a"), ("ADDED", "b")], "{query:?}");
    }
}

pub(crate) async fn selectors_make_objects_come_and_go(place: Arc<Place>) {
    let place = &*place;
    config_map(place, "a", "db").await;
    let path = place.core("configmaps?labelSelector=app=web");
    let version = place.version(&path).await;
    for app in ["web", "web", "web2", "web"] {
        relabel(place, "a", app).await;
    }
    place.delete(&place.core("configmaps/a"), &Value::Null).await.expect(200, "delete");
    let events = place.watch(&format!("{path}&resourceVersion={version}")).await.unwrap();
    assert_eq!(reported(&events), [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "a"), ("DELETED", "a")]);
    assert_eq!(
        events[1]["object"]["metadata"]["labels"]["app"], "web",
        "what left is shown as it was selected"
    );
}

pub(crate) async fn initial_events_end_with_a_bookmark(place: Arc<Place>) {
    let place = &*place;
    config_map(place, "a", "web").await;
    let path = place.core("configmaps?labelSelector=app");
    let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let events = place.watch(&format!("{path}&{query}")).await.unwrap();
    // A real server may send more bookmarks.
    let reported = reported(&events);
    assert_eq!(reported[..2], [("ADDED", "a"), ("BOOKMARK", "")]);
    assert!(reported[2..].iter().all(|event| *event == ("BOOKMARK", "")), "{reported:?}");
    let bookmark = &events[1]["object"]["metadata"];
    assert_eq!(bookmark["annotations"]["k8s.io/initial-events-end"], "true");
    let version = bookmark["resourceVersion"].as_str().unwrap();
    let events = place.watch(&format!("{path}&resourceVersion={version}")).await.unwrap();
    assert!(events.is_empty(), "a bookmark is a version to resume at: {events:?}");
    for query in ["sendInitialEvents=true", "resourceVersionMatch=NotOlderThan"] {
        let refused = place.watch(&format!("{path}&{query}")).await.unwrap_err();
        refused.refused(422, "Invalid", &["resourceVersionMatch"], query);
    }
}

pub(crate) async fn a_bad_version_is_refused(place: Arc<Place>) {
    let refused = place.watch(&place.core("configmaps?resourceVersion=abc")).await.unwrap_err();
    refused.refused(500, "", &[], "a version that is no number");
}
