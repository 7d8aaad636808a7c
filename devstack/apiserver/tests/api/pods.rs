//! Pods: grace, finalizers, bindings.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::harness::{MERGE, Place, STRATEGIC};

async fn pod(place: &Place, name: &str, spec: Value, finalizers: &[&str]) -> Value {
    let mut body = json!({"metadata": {"name": name, "finalizers": finalizers}, "spec": spec});
    body["spec"]["containers"] = json!([{"name": "c", "image": "i:1", "ports": [{"containerPort": 80}]}]);
    body["spec"]["nodeSelector"] = json!({"no": "such-node"});
    place.post(&place.core("pods"), &body).await.expect(201, name)
}

async fn delete(place: &Place, name: &str, grace: Option<i64>) -> Value {
    let body = grace.map_or(Value::Null, |grace| json!({"gracePeriodSeconds": grace}));
    place.delete(&place.core(&format!("pods/{name}")), &body).await.expect(200, name)
}

async fn is_there(place: &Place, name: &str) -> bool {
    place.get(&place.core(&format!("pods/{name}"))).await.code == 200
}

fn grace(pod: &Value) -> Option<i64> {
    pod["metadata"]["deletionGracePeriodSeconds"].as_i64()
}

pub(crate) async fn a_pod_on_a_node_ends_with_grace(place: Arc<Place>) {
    let place = &*place;
    pod(place, "a", json!({"nodeName": "nowhere"}), &[]).await;
    let marked = delete(place, "a", None).await;
    assert_eq!((grace(&marked), marked["metadata"]["generation"].as_i64()), (Some(30), Some(2)));
    let again = delete(place, "a", None).await;
    assert_eq!(
        again["metadata"]["resourceVersion"], marked["metadata"]["resourceVersion"],
        "nothing is written"
    );
    let sooner = delete(place, "a", Some(10)).await;
    assert_eq!(grace(&sooner), Some(10));
    let earlier = |object: &Value| object["metadata"]["deletionTimestamp"].as_str().unwrap().to_owned();
    assert!(earlier(&sooner) < earlier(&marked));
    assert_eq!(grace(&delete(place, "a", Some(20)).await), Some(10), "a deletion is never put off");
    delete(place, "a", Some(0)).await;
    assert!(!is_there(place, "a").await);
}

pub(crate) async fn a_pod_that_nobody_runs_ends_at_once(place: Arc<Place>) {
    let place = &*place;
    pod(place, "unscheduled", json!({}), &[]).await;
    pod(place, "hasty", json!({"nodeName": "nowhere", "terminationGracePeriodSeconds": 0}), &[]).await;
    pod(place, "finished", json!({"nodeName": "nowhere"}), &[]).await;
    let patch = json!({"status": {"phase": "Succeeded"}});
    place.patch(&place.core("pods/finished/status"), MERGE, &patch).await.expect(200, "finish");
    for name in ["unscheduled", "hasty", "finished"] {
        assert_eq!(grace(&delete(place, name, None).await), Some(0), "{name}");
        assert!(!is_there(place, name).await, "{name}");
    }
}

pub(crate) async fn the_last_finalizer_ends_a_pod_only_when_its_grace_is_over(place: Arc<Place>) {
    let place = &*place;
    let finalizer = "test.example.org/a";
    let release = json!({"metadata": {"annotations": {"late": "yes"}, "$deleteFromPrimitiveList/finalizers": [finalizer]}});
    pod(place, "graceful", json!({"nodeName": "nowhere"}), &[finalizer]).await;
    delete(place, "graceful", None).await;
    let path = place.core("pods/graceful");
    place.patch(&path, STRATEGIC, &release).await.expect(200, "release");
    assert!(is_there(place, "graceful").await, "the grace period still runs");
    delete(place, "graceful", Some(0)).await;
    assert!(!is_there(place, "graceful").await);

    let first = pod(place, "held", json!({"nodeName": "nowhere"}), &[finalizer]).await;
    let marked = delete(place, "held", Some(0)).await;
    assert_eq!(grace(&marked), Some(0));
    assert!(is_there(place, "held").await, "the finalizer stands");
    let released = place.patch(&place.core("pods/held"), STRATEGIC, &release).await.expect(200, "release");
    assert_eq!(released["metadata"]["resourceVersion"], marked["metadata"]["resourceVersion"]);
    assert!(!is_there(place, "held").await);
    let version = first["metadata"]["resourceVersion"].as_str().unwrap();
    let query = format!("pods?fieldSelector=metadata.name=held&resourceVersion={version}");
    let events = place.watch(&place.core(&query)).await.unwrap();
    let last = events.last().unwrap();
    assert_eq!(
        (&last["type"], &last["object"]["metadata"]["finalizers"]),
        (&json!("DELETED"), &json!([finalizer]))
    );
    assert_eq!(
        last["object"]["metadata"]["annotations"].get("late"),
        None,
        "the object is shown as it stood"
    );
}

pub(crate) async fn finalizers_merge_and_are_taken_away_one_by_one(place: Arc<Place>) {
    let place = &*place;
    let first = pod(place, "a", json!({}), &["test.example.org/theirs"]).await;
    let path = place.core("pods/a");
    let ours = json!({"metadata": {
        "uid": first["metadata"]["uid"], "annotations": {"a": "b"}, "finalizers": ["test.example.org/ours"],
    }});
    let held = place.patch(&path, STRATEGIC, &ours).await.expect(200, "hold");
    assert_eq!(held["metadata"]["finalizers"], json!(["test.example.org/ours", "test.example.org/theirs"]));
    let release = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["test.example.org/ours", "not.example.org/there"]}});
    let released = place.patch(&path, STRATEGIC, &release).await.expect(200, "release");
    assert_eq!(released["metadata"]["finalizers"], json!(["test.example.org/theirs"]));
    for mistake in [json!({"spec": {"containers": [{"image": "i:2"}]}}), json!({"spec": {"$patch": "melt"}})]
    {
        place.patch(&path, STRATEGIC, &mistake).await.refused(500, "", &[], &mistake.to_string());
    }
    let image = json!({"spec": {"containers": [{"name": "c", "image": "i:2"}]}});
    let patched = place.patch(&path, STRATEGIC, &image).await.expect(200, "image");
    let container = &patched["spec"]["containers"][0];
    assert_eq!((&container["image"], &container["ports"][0]["containerPort"]), (&json!("i:2"), &json!(80)));
    assert_eq!(patched["metadata"]["generation"], 2);
}

pub(crate) async fn a_binding_names_the_node_once(place: Arc<Place>) {
    let place = &*place;
    pod(place, "a", json!({}), &[]).await;
    let path = place.core("pods/a/binding");
    let binding =
        |pod: &str| json!({"metadata": {"name": pod}, "target": {"kind": "Node", "name": "nowhere"}});
    place.post(&path, &binding("b")).await.refused(400, "BadRequest", &[], "a binding of another pod");
    let bound = place.post(&path, &binding("a")).await.expect(201, "bind");
    assert_eq!(bound["status"], "Success");
    let pod = place.get(&place.core("pods/a")).await.expect(200, "bound");
    assert_eq!((&pod["spec"]["nodeName"], &pod["metadata"]["generation"]), (&json!("nowhere"), &json!(1)));
    let selected =
        place.get(&place.core("pods?fieldSelector=spec.nodeName=nowhere")).await.expect(200, "selected");
    assert_eq!(selected["items"].as_array().map(Vec::len), Some(1));
    place.post(&path, &binding("a")).await.refused(409, "Conflict", &[], "a second binding");
    let absent = place.post(&place.core("pods/absent/binding"), &binding("absent")).await;
    absent.refused(404, "NotFound", &[], "a binding of no pod");
}

pub(crate) async fn a_pod_spec_stays_as_it_was_made(place: Arc<Place>) {
    let place = &*place;
    pod(place, "a", json!({}), &[]).await;
    let path = place.core("pods/a");
    for patch in [json!({"spec": {"nodeName": "other"}}), json!({"spec": {"restartPolicy": "Never"}})] {
        place.patch(&path, MERGE, &patch).await.refused(422, "Invalid", &["spec"], &patch.to_string());
    }
    let empty = place.post(&place.core("pods"), &json!({"metadata": {"name": "b"}})).await;
    empty.refused(422, "Invalid", &["spec.containers"], "a pod without containers");
}

pub(crate) async fn defaults_are_filled_in(place: Arc<Place>) {
    let pod = pod(&place, "a", json!({}), &[]).await;
    let spec = &pod["spec"];
    for (field, wanted) in [
        ("restartPolicy", json!("Always")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("dnsPolicy", json!("ClusterFirst")),
        ("schedulerName", json!("default-scheduler")),
        ("serviceAccountName", json!("default")),
        ("enableServiceLinks", json!(true)),
        ("priority", json!(0)),
    ] {
        assert_eq!(spec[field], wanted, "{field}");
    }
    assert_eq!(spec["containers"][0]["ports"][0]["protocol"], "TCP");
    assert_eq!(spec["containers"][0]["imagePullPolicy"], "IfNotPresent");
    assert_eq!(spec["tolerations"].as_array().map(Vec::len), Some(2));
    assert_eq!(
        (&pod["status"]["phase"], &pod["status"]["qosClass"]),
        (&json!("Pending"), &json!("BestEffort"))
    );
}
