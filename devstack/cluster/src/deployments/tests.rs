use serde_json::Value;

use super::*;
use crate::call::Verb;
use crate::testing::shared;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn deployment(image: &str) -> Arc<Deployment> {
    shared(json!({
        "metadata": { "namespace": "shop", "name": "web", "uid": "d", "generation": 2 },
        "spec": { "replicas": 3, "selector": { "matchLabels": { "app": "web" } }, "template": {
            "metadata": { "labels": { "app": "web" } },
            "spec": { "containers": [{ "name": "web", "image": image }] } } },
    }))
}

/// The replica set that the Deployment makes, as the server answers.
fn made(deployment: &Deployment, replicas: i32, available: i32) -> Arc<ReplicaSet> {
    let mut set = new_set(deployment, &deployment.spec.as_ref().unwrap().template);
    set.metadata.uid = set.metadata.name.clone();
    set.spec.as_mut().unwrap().replicas = Some(replicas);
    let status = json!({ "replicas": replicas, "readyReplicas": available, "availableReplicas": available });
    set.status = serde_json::from_value(status).unwrap();
    Arc::new(set)
}

fn status_of(plan: &Plan) -> Value {
    let status = plan.calls.iter().find_map(|call| match &call.verb {
        Verb::Patch { subresource: Some("status"), body } => Some(body["status"].clone()),
        _ => None,
    });
    status.unwrap()
}

#[test]
fn a_new_template_gets_a_replica_set_of_its_own_under_a_name_that_follows_from_it() {
    let first_call = |deployment, sets: &[_]| plan(&[deployment], sets, NOW).calls.remove(0);
    let first = first_call(deployment("web:1"), &[]);
    assert_eq!(first, first_call(deployment("web:1"), &[]));
    let Verb::Create(set) = &first.verb else { panic!("{first:?}") };
    assert_eq!(set["spec"]["replicas"], 0);
    let hash = &set["spec"]["selector"]["matchLabels"]["pod-template-hash"];
    assert_eq!(&set["spec"]["template"]["metadata"]["labels"]["pod-template-hash"], hash);
    let second = first_call(deployment("web:2"), &[made(&deployment("web:1"), 3, 3)]);
    assert!(matches!(second.verb, Verb::Create(_)) && second.name != first.name);
}

#[test]
fn the_replica_set_of_the_template_is_known_again_and_scaled() {
    let deployment = deployment("web:1");
    let plan = plan(&[Arc::clone(&deployment)], &[made(&deployment, 1, 1)], NOW);
    let Verb::Patch { subresource: None, body } = &plan.calls[0].verb else { panic!("{plan:?}") };
    assert_eq!(body["spec"]["replicas"], 3);
}

#[test]
fn the_status_counts_the_pods_of_all_sets_and_says_when_the_rollout_is_complete() {
    let (before, after) = (deployment("web:1"), deployment("web:2"));
    let sets = [made(&before, 2, 2), made(&after, 2, 1)];
    let status = status_of(&plan(&[Arc::clone(&after)], &sets, NOW));
    for (field, count) in
        [("replicas", 4), ("updatedReplicas", 2), ("availableReplicas", 3), ("unavailableReplicas", 1)]
    {
        assert_eq!(status[field], count, "{field}");
    }
    assert_eq!(status["observedGeneration"], 2);
    assert_eq!(status["conditions"][1]["reason"], "ReplicaSetUpdated");
    let sets = [made(&before, 0, 0), made(&after, 3, 3)];
    let status = status_of(&plan(&[after], &sets, NOW));
    assert_eq!(status["conditions"][1]["reason"], "NewReplicaSetAvailable");
}

#[test]
fn a_condition_keeps_its_time_while_it_says_the_same() {
    let mut deployment = deployment("web:1");
    let sets = [made(&deployment, 3, 3)];
    let status = status_of(&plan(&[Arc::clone(&deployment)], &sets, NOW));
    Arc::make_mut(&mut deployment).status = serde_json::from_value(status).unwrap();
    assert_eq!(plan(&[deployment], &sets, Timestamp::MAX).calls, []);
}

#[test]
fn of_the_empty_sets_the_oldest_are_forgotten() {
    let mut deployment = deployment("web:9");
    Arc::make_mut(&mut deployment).spec.as_mut().unwrap().revision_history_limit = Some(1);
    let empty = |image: &str, day: &str| {
        let mut set = made(&self::deployment(image), 0, 0);
        let time = serde_json::from_value(json!(format!("2026-01-0{day}T00:00:00Z"))).unwrap();
        Arc::make_mut(&mut set).metadata.creation_timestamp = time;
        set
    };
    let (oldest, older) = (empty("web:1", "1"), empty("web:2", "2"));
    let plan = plan(&[deployment], &[older, Arc::clone(&oldest)], NOW);
    let gone = plan.calls.iter().filter(|call| matches!(call.verb, Verb::Delete { .. }));
    assert_eq!(gone.map(|call| &call.name).collect::<Vec<_>>(), [&oldest.name_any()]);
}
