//! Each verb on each row.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::harness::{JSON, JSON_PATCH, MERGE, Place, STRATEGIC, told};
use crate::rows::{Row, rows};

async fn made(place: &Place, row: &Row, name: &str) -> Value {
    let what = format!("create {}", row.called());
    place.post(&row.path(place), &row.sample(place, name)).await.expect(201, &what)
}

/// Replaces an object by itself after `change`, again if a controller of the real server wrote in between.
async fn replaced(place: &Place, path: &str, change: impl Fn(&mut Value)) -> Value {
    for _ in 0..20 {
        let mut object = place.get(path).await.expect(200, path);
        change(&mut object);
        let answer = place.put(path, &object).await;
        if answer.code != 409 {
            return answer.expect(200, path);
        }
    }
    panic!("{path}: no replace came through");
}

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

pub(crate) async fn get_finds_what_was_created(place: Arc<Place>) {
    let place = &*place;
    for row in rows(place).await {
        let called = row.called();
        let object = made(place, &row, "a").await;
        let found = place.get(&row.object(place, "a")).await.expect(200, &called);
        assert_eq!(found["metadata"]["uid"], object["metadata"]["uid"], "{called}");
        let absent = place.get(&row.object(place, "absent")).await;
        absent.refused(404, "NotFound", &[], &called);
        let wanted = json!([row.name(place, "absent"), row.plural]);
        let details = &absent.body["details"];
        assert_eq!(json!([details["name"], details["kind"]]), wanted, "{called}");
        assert_eq!(details["group"].as_str().unwrap_or_default(), row.group, "{called}");
        let message = format!("{called} \"{}\" not found", row.name(place, "absent"));
        assert_eq!(absent.body["message"], message);
    }
}

pub(crate) async fn list_selects_by_label_and_by_name(place: Arc<Place>) {
    let place = &*place;
    for row in rows(place).await {
        let called = row.called();
        for name in ["a", "b", "c"] {
            made(place, &row, name).await;
        }
        let list = place.get(&format!("{}?labelSelector=test", row.path(place))).await.expect(200, &called);
        assert_eq!(list["kind"], format!("{}List", row.kind), "{called}");
        assert!(list["metadata"]["resourceVersion"].is_string(), "{called}");
        assert_eq!(
            list["items"][0]["kind"].is_string(),
            row.custom,
            "{called}: items of lists and their kind"
        );
        for (selector, wanted) in [
            ("labelSelector=test%20in%20(a,b)", &["a", "b"][..]),
            ("labelSelector=test!=a,test", &["b", "c"]),
            ("labelSelector=test%20notin%20(a,b),test", &["c"]),
            ("labelSelector=test=c,!nothing", &["c"]),
        ] {
            let listed = names(place, &row, selector).await;
            let wanted: Vec<_> = wanted.iter().map(|name| row.name(place, name)).collect();
            assert_eq!(listed, wanted, "{called} {selector}");
        }
        let one = format!("fieldSelector=metadata.name={}", row.name(place, "b"));
        assert_eq!(names(place, &row, &one).await, [row.name(place, "b")], "{called} {one}");
        let two = format!("labelSelector=test&fieldSelector=metadata.name!={}", row.name(place, "b"));
        assert_eq!(names(place, &row, &two).await.len(), 2, "{called} {two}");
    }
}

async fn names(place: &Place, row: &Row, query: &str) -> Vec<String> {
    let mut names = Vec::new();
    let list = place.get(&format!("{}?{query}", row.path(place))).await.expect(200, query);
    for item in list["items"].as_array().unwrap() {
        let name = item["metadata"]["name"].as_str().unwrap();
        // Other tests may use the same labels on cluster-wide objects at this moment.
        if row.namespaced || name.starts_with(&place.word) {
            names.push(name.to_owned());
        }
    }
    names
}

pub(crate) async fn watch_tells_of_a_whole_life(place: Arc<Place>) {
    let place = &*place;
    let mut lives = Vec::new();
    for row in rows(place).await {
        let version = place.version(&row.path(place)).await;
        made(place, &row, "a").await;
        let path = row.object(place, "a");
        place
            .patch(&path, MERGE, &json!({"metadata": {"labels": {"more": "yes"}}}))
            .await
            .expect(200, &row.called());
        place.delete(&path, &Value::Null).await.expect(200, &row.called());
        lives.push((row, version));
    }
    for (row, version) in lives {
        let called = row.called();
        let name = row.name(place, "a");
        let query = format!("fieldSelector=metadata.name={name}&resourceVersion={version}");
        let mut events = place.watch(&format!("{}?{query}", row.path(place))).await.unwrap();
        // A namespace on a real server goes a moment later.
        events.dedup_by(|later, earlier| later["type"] == earlier["type"]);
        let kinds: Vec<_> = told(&events).iter().map(|(kind, _)| *kind).collect();
        let whole = ["ADDED", "MODIFIED", "DELETED"];
        assert!(whole.starts_with(&kinds) && kinds.len() >= 2, "{called}: {kinds:?}");
        assert!(kinds == whole || row.kind == "Namespace", "{called}: {kinds:?}");
        let versions: Vec<u64> = events
            .iter()
            .map(|event| event["object"]["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap())
            .collect();
        assert!(versions.is_sorted_by(|a, b| a < b), "{called}: {versions:?}");
        assert!(events.iter().all(|event| event["object"]["kind"] == row.kind), "{called}");
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
        let answer = place.put(&row.object(place, "a"), &row.sample(place, "a")).await;
        let what = format!("replace an absent {}", row.called());
        if row.create_on_put {
            answer.expect(201, &what);
        } else {
            answer.refused(404, "NotFound", &[], &what);
        }
    }
}

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

pub(crate) async fn delete_answers_and_removes(place: Arc<Place>) {
    let place = &*place;
    for row in rows(place).await {
        let called = row.called();
        let object = made(place, &row, "a").await;
        let path = row.object(place, "a");
        let answer = place.delete(&path, &Value::Null).await.expect(200, &called);
        if row.echoed {
            assert_eq!(answer["metadata"]["uid"], object["metadata"]["uid"], "{called}");
        } else {
            assert_eq!(answer["status"], "Success", "{called}: {answer}");
            let details = &answer["details"];
            let given = [&details["name"], &details["kind"], &details["uid"]];
            let wanted = [&json!(row.name(place, "a")), &json!(row.plural), &object["metadata"]["uid"]];
            assert_eq!(given, wanted, "{called}");
        }
        place.until(&format!("{called} is gone"), || async { place.get(&path).await.code == 404 }).await;
        place.delete(&path, &Value::Null).await.refused(
            404,
            "NotFound",
            &[],
            &format!("delete {called} twice"),
        );
    }
}

pub(crate) async fn delete_collection_takes_what_is_selected(place: Arc<Place>) {
    let place = &*place;
    for row in rows(place).await.into_iter().filter(|row| row.namespaced) {
        let called = row.called();
        for name in ["a", "b", "c"] {
            made(place, &row, name).await;
        }
        let selected = format!("{}?labelSelector=test%20in%20(a,b)", row.path(place));
        let list = place.delete(&selected, &Value::Null).await.expect(200, &called);
        assert_eq!(list["items"].as_array().map(Vec::len), Some(2), "{called}: {list}");
        assert_eq!(names(place, &row, "labelSelector=test").await, [row.name(place, "c")], "{called}");
    }
    let refused = place.delete("/api/v1/namespaces", &Value::Null).await;
    refused.refused(405, "MethodNotAllowed", &[], "delete all namespaces");
}

pub(crate) async fn discovery_names_every_row(place: Arc<Place>) {
    let place = &*place;
    for row in rows(place).await {
        let called = row.called();
        let resources = place.get(&row.version_path()).await.expect(200, &called)["resources"].clone();
        let entry = |name: &str| {
            resources.as_array().unwrap().iter().find(|resource| resource["name"] == name).cloned()
        };
        let main = entry(row.plural).unwrap_or_else(|| panic!("{called} is not discovered"));
        assert_eq!(
            (&main["kind"], &main["namespaced"]),
            (&json!(row.kind), &json!(row.namespaced)),
            "{called}"
        );
        let verbs = main["verbs"].as_array().unwrap();
        for verb in ["create", "delete", "get", "list", "patch", "update", "watch"] {
            assert!(verbs.contains(&json!(verb)), "{called} can {verb}");
        }
        assert_eq!(entry(&format!("{}/status", row.plural)).is_some(), row.status, "{called}/status");
        assert_eq!(entry(&format!("{}/scale", row.plural)).is_some(), row.scale, "{called}/scale");
        if !row.group.is_empty() {
            let groups = place.get("/apis").await.expect(200, "groups")["groups"].clone();
            let group = groups.as_array().unwrap().iter().find(|group| group["name"] == row.group).cloned();
            let preferred = group.unwrap_or_default()["preferredVersion"]["groupVersion"].clone();
            assert_eq!(preferred, format!("{}/v1", row.group), "{called}");
        }
    }
    assert_eq!(place.get("/api").await.expect(200, "/api")["versions"], json!(["v1"]));
    assert_eq!(place.get("/version").await.expect(200, "/version")["major"], "1");
}

pub(crate) async fn tables_and_metadata_are_forms_of_every_list(place: Arc<Place>) {
    let place = &*place;
    for row in rows(place).await {
        let called = row.called();
        made(place, &row, "a").await;
        let path = format!("{}?labelSelector=test=a", row.path(place));
        let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        let table = place.send_accepting("GET", &path, JSON, Vec::new(), accept).await.expect(200, &called);
        assert_eq!(table["kind"], "Table", "{called}");
        let columns = table["columnDefinitions"].as_array().unwrap();
        let has_name = columns.iter().any(|column| column["name"] == "Name");
        assert!(has_name, "{called}: {columns:?}");
        for cells in table["rows"].as_array().unwrap() {
            assert_eq!(cells["cells"].as_array().map(Vec::len), Some(columns.len()), "{called}");
            assert_eq!(cells["object"]["kind"], "PartialObjectMetadata", "{called}");
        }
        let accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json";
        let list = place.send_accepting("GET", &path, JSON, Vec::new(), accept).await.expect(200, &called);
        assert_eq!(list["kind"], "PartialObjectMetadataList", "{called}");
        assert!(list["items"][0].get("spec").is_none(), "{called}");
        let refused = place.send_accepting("GET", &path, JSON, Vec::new(), "application/xml").await;
        refused.refused(406, "NotAcceptable", &[], &called);
    }
}
