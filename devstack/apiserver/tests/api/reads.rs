//! get, list, watch and discovery on each row.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::harness::{JSON, MERGE, Place, reported};
use crate::rows::{Row, made, rows};

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

pub(crate) async fn names(place: &Place, row: &Row, query: &str) -> Vec<String> {
    let mut names = Vec::new();
    let list = place.get(&format!("{}?{query}", row.path(place))).await.expect(200, query);
    for item in list["items"].as_array().unwrap() {
        let name = item["metadata"]["name"].as_str().unwrap();
        // The same labels are used on other rows that show the same objects, and by other tests cluster-wide.
        if name.starts_with(&row.name(place, "")) {
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
    let watches = lives.iter().map(async |(row, version)| {
        let name = row.name(place, "a");
        let query = format!("fieldSelector=metadata.name={name}&resourceVersion={version}");
        place.watch(&format!("{}?{query}", row.path(place))).await.unwrap()
    });
    let reported_of = futures_util::future::join_all(watches).await;
    for ((row, _), mut events) in lives.iter().zip(reported_of) {
        let called = row.called();
        // A namespace on a real server goes a moment later.
        events.dedup_by(|later, earlier| later["type"] == earlier["type"]);
        let kinds: Vec<_> = reported(&events).iter().map(|(kind, _)| *kind).collect();
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

pub(crate) async fn access_is_decided_by_cluster_roles(place: Arc<Place>) {
    let place = &*place;
    let name = format!("{}-a", place.word);
    let review = async |user: &str, group: &str, attributes: [&str; 3]| {
        let [verb, subresource, node] = attributes;
        let attributes = json!({"verb": verb, "version": "v1", "resource": "nodes", "subresource": subresource, "name": node});
        let spec = json!({"user": user, "groups": [group], "resourceAttributes": attributes});
        let review =
            json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec});
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        place.post(path, &review).await.expect(201, "a review")["status"]["allowed"] == true
    };
    let roles = "/apis/rbac.authorization.k8s.io/v1";
    let rule =
        json!({"apiGroups": [""], "resources": ["nodes/stats"], "verbs": ["get"], "resourceNames": ["n1"]});
    let role = json!({"metadata": {"name": name}, "rules": [rule]});
    place.post(&format!("{roles}/clusterroles"), &role).await.expect(201, "a role");
    let subjects = json!([
        {"kind": "Group", "name": name, "apiGroup": "rbac.authorization.k8s.io"},
        {"kind": "ServiceAccount", "name": "metrics", "namespace": place.namespace},
    ]);
    let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name});
    let binding = json!({"metadata": {"name": name}, "subjects": subjects, "roleRef": reference});
    place.post(&format!("{roles}/clusterrolebindings"), &binding).await.expect(201, "a binding");
    let own = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "delete", "version": "v1", "resource": "nodes"}}});
    let own = place.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &own).await;
    assert_eq!(
        own.expect(201, "a review")["status"]["allowed"],
        true,
        "the client of this test may do everything"
    );
    let wanted = ["get", "stats", "n1"];
    place.until("the binding counts", async || review("somebody", &name, wanted).await).await;
    let account = format!("system:serviceaccount:{}:metrics", place.namespace);
    assert!(review(&account, "others", wanted).await);
    assert!(review("admin", "system:masters", ["create", "proxy", "n1"]).await);
    assert!(!review("somebody", "others", wanted).await);
    for other in
        [["create", "stats", "n1"], ["get", "proxy", "n1"], ["get", "", "n1"], ["get", "stats", "n2"]]
    {
        assert!(!review("somebody", &name, other).await, "{other:?}");
    }
}
