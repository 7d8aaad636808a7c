//! The controller of `ReplicaSet`s: it creates and deletes pods until their number is the wanted one.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetStatus};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

use crate::call::Call;
use crate::names::suffix;
use crate::owners::{controlled_by, created, dependents};
use crate::pods::{is_active, is_ready, node, phase};
use crate::shell::Plan;

/// Returns the calls that are due for all replica sets.
pub(crate) fn plan(sets: &[Arc<ReplicaSet>], pods: &[Arc<Pod>]) -> Plan {
    let mut plan = Plan::default();
    for set in sets {
        plan.extend(plan_one(set, &dependents(&**set, pods)));
    }
    plan
}

fn plan_one(set: &ReplicaSet, pods: &[Arc<Pod>]) -> Vec<Call> {
    let active: Vec<_> = pods.iter().filter(|pod| is_active(pod)).collect();
    let mut calls = Vec::new();
    if set.metadata.deletion_timestamp.is_none() {
        let wanted = wanted(set);
        let missing = wanted.saturating_sub(active.len());
        calls.extend(free_names(set, pods).take(missing).map(|name| Call::create(&new_pod(set, name))));
        let surplus = active.len().saturating_sub(wanted);
        calls.extend(least_useful(&active).into_iter().take(surplus).map(|pod| Call::delete(&**pod, None)));
    }
    let status = status(set, &active);
    if set.status.as_ref() != Some(&status) {
        calls.push(Call::status(set, status));
    }
    calls
}

/// The wanted number of pods.
pub(crate) fn wanted(set: &ReplicaSet) -> usize {
    let replicas = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    usize::try_from(replicas).unwrap_or(0)
}

/// Names that none of its pods bears. They follow from the set, so that a pod which the view does not show yet is refused
/// by the server the second time.
fn free_names<'a>(set: &'a ReplicaSet, pods: &[Arc<Pod>]) -> impl Iterator<Item = String> + use<'a> {
    let taken: BTreeSet<_> = pods.iter().map(|pod| pod.name_any()).collect();
    let name = move |ordinal: u32| format!("{}-{}", set.name_any(), suffix((&set.metadata.uid, ordinal), 5));
    (0..).map(name).filter(move |name| !taken.contains(name))
}

fn new_pod(set: &ReplicaSet, name: String) -> Pod {
    let template = set.spec.as_ref().and_then(|spec| spec.template.clone()).unwrap_or_default();
    let meta = template.metadata.unwrap_or_default();
    Pod {
        metadata: ObjectMeta {
            name: Some(name),
            generate_name: Some(format!("{}-", set.name_any())),
            namespace: set.namespace(),
            labels: meta.labels,
            annotations: meta.annotations,
            owner_references: Some(controlled_by(set)),
            ..ObjectMeta::default()
        },
        spec: template.spec,
        status: None,
    }
}

/// The pods, those first that are missed least: without a node, not started, not ready, young.
fn least_useful<'a>(active: &[&'a Arc<Pod>]) -> Vec<&'a Arc<Pod>> {
    let mut pods = active.to_vec();
    pods.sort_by_cached_key(|pod| {
        let useful = (node(pod).is_some(), phase(pod) != "Pending", is_ready(pod));
        (useful, Reverse(created(&***pod)), pod.name_any())
    });
    pods
}

fn status(set: &ReplicaSet, active: &[&Arc<Pod>]) -> ReplicaSetStatus {
    let count = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
    let ready = count(active.iter().filter(|pod| is_ready(pod)).count());
    let labels =
        set.spec.as_ref().and_then(|spec| spec.template.as_ref()?.metadata.as_ref()?.labels.as_ref());
    let labelled = |pod: &&&Arc<Pod>| {
        labels.into_iter().flatten().all(|(key, value)| pod.labels().get(key) == Some(value))
    };
    let before = set.status.clone().unwrap_or_default();
    ReplicaSetStatus {
        replicas: count(active.len()),
        ready_replicas: Some(ready),
        available_replicas: Some(ready),
        fully_labeled_replicas: Some(count(active.iter().filter(labelled).count())),
        observed_generation: set.metadata.generation,
        ..before
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::call::Verb;
    use crate::testing::{object, pod};

    fn set(replicas: i32) -> Arc<ReplicaSet> {
        Arc::new(object(json!({
            "metadata": { "namespace": "shop", "name": "web-1", "uid": "set", "generation": 3 },
            "spec": { "replicas": replicas, "selector": {}, "template": {
                "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [] } } },
        })))
    }

    fn pods_of(set: &ReplicaSet, count: usize) -> Vec<Arc<Pod>> {
        let mut pods: Vec<_> = free_names(set, &[]).take(count).map(|name| new_pod(set, name)).collect();
        for pod in &mut pods {
            pod.metadata.uid = pod.metadata.name.clone();
        }
        pods.into_iter().map(Arc::new).collect()
    }

    fn verbs(plan: &Plan) -> Vec<(&'static str, &str)> {
        let verb = |call: &Call| match &call.verb {
            Verb::Create(_) => "create",
            Verb::Delete { .. } => "delete",
            Verb::Patch { .. } => "patch",
            other => panic!("{other:?}"),
        };
        plan.calls.iter().map(|call| (verb(call), call.name.as_str())).collect()
    }

    #[test]
    fn missing_pods_are_made_under_the_same_names_until_they_are_seen() {
        let set = set(3);
        let known = pods_of(&set, 1);
        let plan = plan(&[Arc::clone(&set)], &known);
        let made: Vec<_> = verbs(&plan).into_iter().filter(|(verb, _)| *verb == "create").collect();
        assert_eq!(made.len(), 2);
        assert!(made.iter().all(|(_, name)| *name != known[0].name_any()));
        assert_eq!(verbs(&super::plan(&[set], &known)), verbs(&plan));
        let Verb::Create(body) = &plan.calls[0].verb else { panic!("{plan:?}") };
        assert_eq!(body["metadata"]["labels"], json!({ "app": "web" }));
        assert_eq!(body["metadata"]["ownerReferences"][0]["uid"], "set");
    }

    #[test]
    fn of_too_many_pods_those_go_that_are_missed_least() {
        let set = set(1);
        let mut pods = pods_of(&set, 3);
        for (pod, ready) in pods.iter_mut().zip([false, true, false]) {
            let running =
                json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] });
            let status: Value = if ready { running } else { json!({ "phase": "Pending" }) };
            Arc::make_mut(pod).status = serde_json::from_value(status).unwrap();
        }
        let plan = plan(&[set], &pods);
        let gone: Vec<_> = verbs(&plan).into_iter().filter(|(verb, _)| *verb == "delete").collect();
        assert_eq!(gone.len(), 2);
        assert!(gone.iter().all(|(_, name)| *name != pods[1].name_any()));
    }

    #[test]
    fn a_pod_that_goes_or_belongs_to_another_does_not_count() {
        let set = set(1);
        let mut pods = pods_of(&set, 1);
        Arc::make_mut(&mut pods[0]).metadata.deletion_timestamp =
            serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        pods.push(Arc::new(pod(json!({ "metadata": { "namespace": "shop", "name": "web-1-other" } }))));
        let plan = plan(&[set], &pods);
        assert_eq!(verbs(&plan).iter().filter(|(verb, _)| *verb == "create").count(), 1);
    }

    #[test]
    fn a_status_that_says_it_already_is_not_written_again() {
        let mut set = set(0);
        let plan = plan(&[Arc::clone(&set)], &[]);
        assert_eq!(verbs(&plan), [("patch", "web-1")]);
        Arc::make_mut(&mut set).status = Some(status(&set, &[]));
        assert_eq!(super::plan(&[set], &[]).calls, []);
    }

    #[test]
    fn a_set_that_is_to_be_deleted_makes_no_pods() {
        let mut set = set(2);
        Arc::make_mut(&mut set).metadata.deletion_timestamp =
            serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        assert_eq!(verbs(&plan(&[set], &[])), [("patch", "web-1")]);
    }
}
