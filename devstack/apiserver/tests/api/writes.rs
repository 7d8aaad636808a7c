//! create and replace on each row.

use std::sync::Arc;

use serde_json::json;

use crate::harness::Place;
use crate::rows::{made, replaced, rows};

pub(crate) async fn create_gives_an_object_its_identity(place: Arc<Place>) {
    let place = &*place;
    for row in rows(place).await {
        let called = row.called();
        let object = made(place, &row, "a").await;
        let metadata = &object["metadata"];
        assert_eq!(object["kind"], row.kind, "{called}");
        assert_eq!(metadata["name"], row.name(place, "a"), "{called}");
        assert_eq!(metadata["uid"].as_str().map(str::len), Some(36), "{called}: {metadata}");
        for field in ["creationTimestamp", "resourceVersion"] {
            assert!(metadata[field].is_string(), "{called} has a {field}: {metadata}");
        }
        assert_eq!(metadata["generation"].as_i64(), row.generation.then_some(1), "{called}: {metadata}");
        let again = place.post(&row.path(place), &row.sample(place, "a")).await;
        again.refused(409, "AlreadyExists", &[], &format!("create {called} twice"));
        if row.namespaced {
            let mut sample = row.sample(place, "a");
            sample["metadata"] = json!({"generateName": "made-"});
            let object = place.post(&row.path(place), &sample).await.expect(201, &called);
            let name = object["metadata"]["name"].as_str().unwrap();
            assert!(name.starts_with("made-") && name.len() == 10, "{called}: {name}");
        }
    }
}

pub(crate) async fn create_refuses_what_it_cannot_store(place: Arc<Place>) {
    let place = &*place;
    for row in rows(place).await {
        let called = row.called();
        let path = row.path(place);
        let mut versioned = row.sample(place, "a");
        versioned["metadata"]["resourceVersion"] = json!("1");
        place.post(&path, &versioned).await.refused(500, "", &[], &format!("create {called} with a version"));
        let mut unlabelled = row.sample(place, "a");
        unlabelled["metadata"]["labels"] = json!({"a": "b c"});
        let refused = place.post(&path, &unlabelled).await;
        refused.refused(422, "Invalid", &["metadata.labels"], &format!("create {called} with a bad label"));
        let mut strange = row.sample(place, "a");
        strange["metadata"]["labels"] = json!({"a": 1});
        place.post(&path, &strange).await.refused(
            400,
            "BadRequest",
            &[],
            &format!("create {called} with a number"),
        );
        if !row.namespaced {
            continue;
        }
        let mut elsewhere = row.sample(place, "a");
        elsewhere["metadata"]["namespace"] = json!("elsewhere");
        let refused = place.post(&path, &elsewhere).await;
        refused.refused(400, "BadRequest", &[], &format!("create {called} for another namespace"));
        let nowhere = path.replace(&place.namespace, "no-such-namespace");
        let mut sample = row.sample(place, "a");
        sample["metadata"].as_object_mut().unwrap().remove("namespace");
        for about in ["involvedObject", "regarding"] {
            if sample[about].is_object() {
                sample[about]["namespace"] = json!("no-such-namespace");
            }
        }
        let refused = place.post(&nowhere, &sample).await;
        refused.refused(404, "NotFound", &[], &format!("create {called} in no namespace"));
        assert_eq!(refused.body["details"]["kind"], "namespaces", "{called}");
    }
}

pub(crate) async fn replace_wants_the_version_it_replaces(place: Arc<Place>) {
    let place = &*place;
    for row in rows(place).await {
        let called = row.called();
        let path = row.object(place, "a");
        let first = made(place, &row, "a").await;
        let next = replaced(place, &path, |object| object["metadata"]["labels"]["next"] = json!("yes")).await;
        assert_eq!(next["metadata"]["labels"]["next"], "yes", "{called}");
        assert_eq!(next["metadata"]["uid"], first["metadata"]["uid"], "{called}");
        place.put(&path, &first).await.refused(409, "Conflict", &[], &format!("replace a stale {called}"));
        let mut unversioned = next.clone();
        unversioned["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        let answer = place.put(&path, &unversioned).await;
        if row.versioned_put {
            answer.refused(422, "Invalid", &["metadata.resourceVersion"], &called);
        } else {
            answer.expect(200, &format!("replace {called} whatever its version"));
        }
        let mut renamed = next.clone();
        renamed["metadata"]["name"] = json!("other");
        place.put(&path, &renamed).await.refused(400, "BadRequest", &[], &format!("rename {called}"));
        let mut other = place.get(&path).await.expect(200, &called);
        other["metadata"]["uid"] = json!("other");
        place.put(&path, &other).await.refused(409, "Conflict", &[], &format!("replace another {called}"));
    }
}

pub(crate) async fn replace_of_what_is_not_there_creates_it_where_that_is_allowed(place: Arc<Place>) {
    let place = &*place;
    for row in rows(place).await {
        let path = row.object(place, "a");
        let mut sample = row.sample(place, "a");
        let what = format!("replace an absent {}", row.called());
        if row.create_on_put {
            sample["metadata"]["uid"] = json!("one");
            let refused = place.put(&path, &sample).await;
            refused.refused(409, "Conflict", &[], &format!("{what} that had a UID"));
            sample["metadata"].as_object_mut().unwrap().remove("uid");
            sample["metadata"]["resourceVersion"] = json!("1");
            place.put(&path, &sample).await.expect(201, &format!("{what} that had a version"));
        } else {
            let answer = place.put(&path, &sample).await;
            answer.refused(404, "NotFound", &[], &what);
        }
    }
}
