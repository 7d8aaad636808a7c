//! Computes the replicas of peer Deployments, and the containers with which a base is to start. Pure functions.

use std::cmp::Ordering;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, PodSpec};

use super::node::BaseNode;
use super::scheduling::may_run;
use crate::vnode::marks::{COMPONENT, COMPONENT_DEPLOYMENT, ENVIRONMENT};

/// The label of a Deployment with the strategy by which its replicas are chosen.
const STRATEGY: &str = "virtual-kubelet.koupleless.io/strategy";

/// The value of [`STRATEGY`] of a Deployment with one replica for each base that its pods match.
const PEER: &str = "peer";

/// The label that is `true` on a Deployment whose replicas another controller or a user sets.
const REPLICAS_CONTROL: &str = "virtual-kubelet.koupleless.io/replicas-control";

/// Returns `true` if the Deployment is to have one replica for each base of `environment` that its pods match.
pub(super) fn is_peer(deployment: &Deployment, environment: &str) -> bool {
    let label = |key: &str| deployment.metadata.labels.as_ref()?.get(key).map(String::as_str);
    label(COMPONENT) == Some(COMPONENT_DEPLOYMENT)
        && label(ENVIRONMENT) == Some(environment)
        && label(STRATEGY) == Some(PEER)
        && label(REPLICAS_CONTROL) != Some("true")
        && deployment.metadata.deletion_timestamp.is_none()
}

/// Returns the number of replicas that a peer Deployment is to have; `None` if it has that number already, or specifies no pods.
pub(super) fn change<'a>(
    deployment: &Deployment,
    nodes: impl IntoIterator<Item = &'a BaseNode>,
) -> Option<i32> {
    let pod = template(deployment)?;
    let matching = nodes.into_iter().filter(|node| may_run(pod, node)).count();
    let wanted = i32::try_from(matching).unwrap_or(i32::MAX);
    let has = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    (wanted != has).then_some(wanted)
}

/// Returns the containers of the peer Deployments whose pods `node` matches: those of the oldest Deployment first. Of two
/// containers with the same name, a base takes the later one.
pub(super) fn baseline<'a>(
    deployments: impl IntoIterator<Item = &'a Deployment>,
    node: &BaseNode,
) -> Vec<Container> {
    let mut matching: Vec<_> = deployments
        .into_iter()
        .filter_map(|deployment| Some((deployment, template(deployment)?)))
        .filter(|(_, pod)| may_run(pod, node))
        .collect();
    matching.sort_by(|(one, _), (other, _)| by_age(one, other));
    matching.into_iter().flat_map(|(_, pod)| pod.containers.iter().cloned()).collect()
}

/// Returns the containers of the pods of a Deployment.
pub(super) fn containers(deployment: &Deployment) -> &[Container] {
    template(deployment).map(|pod| pod.containers.as_slice()).unwrap_or_default()
}

/// Returns the specification of the pods of a Deployment.
fn template(deployment: &Deployment) -> Option<&PodSpec> {
    deployment.spec.as_ref()?.template.spec.as_ref()
}

/// Compares two Deployments by their age, the oldest first. Namespace and name decide between those of one second.
fn by_age(one: &Deployment, other: &Deployment) -> Ordering {
    let key = |deployment: &Deployment| {
        let meta = &deployment.metadata;
        let created = meta.creation_timestamp.as_ref().map(|time| time.0);
        (created, meta.namespace.clone(), meta.name.clone())
    };
    key(one).cmp(&key(other))
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Returns a peer Deployment whose pods run in these zones. `age` is the second of its creation.
    pub(crate) fn deployment(name: &str, age: u8, zones: &[&str], replicas: i32) -> Deployment {
        let labels = json!({ COMPONENT: COMPONENT_DEPLOYMENT, ENVIRONMENT: "dev", STRATEGY: PEER });
        let zone = json!({ "key": "zone", "operator": "In", "values": zones });
        let required = json!({ "nodeSelectorTerms": [{ "matchExpressions": [zone] }] });
        let affinity =
            json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": required } });
        let containers = json!([{ "name": name, "image": "https://example.com/cart.jar" }]);
        let pod = json!({ "spec": {
            "affinity": affinity, "containers": containers, "tolerations": [{ "operator": "Exists" }],
        } });
        let deployment = json!({
            "metadata": { "name": name, "namespace": "default", "uid": format!("uid-{name}"), "resourceVersion": "1",
                "creationTimestamp": format!("2026-01-01T00:00:{age:02}Z"), "labels": labels },
            "spec": { "replicas": replicas, "selector": {}, "template": pod },
        });
        serde_json::from_value(deployment).unwrap()
    }

    fn node(zone: &str) -> BaseNode {
        let labels = [("zone".to_owned(), zone.to_owned())].into();
        BaseNode { name: zone.to_owned(), labels, taints: Vec::new() }
    }

    fn labelled(key: &str, value: Value) -> Deployment {
        let mut deployment = deployment("cart", 1, &["a"], 1);
        let labels = deployment.metadata.labels.as_mut().unwrap();
        match value {
            Value::String(value) => drop(labels.insert(key.to_owned(), value)),
            _ => drop(labels.remove(key)),
        }
        deployment
    }

    #[test]
    fn only_marked_deployments_of_the_environment_are_peers_and_none_that_somebody_else_scales() {
        assert!(is_peer(&deployment("cart", 1, &["a"], 1), "dev"));
        assert!(!is_peer(&deployment("cart", 1, &["a"], 1), "prod"));
        for (key, value) in [
            (STRATEGY, json!("scale")),
            (STRATEGY, json!(null)),
            (COMPONENT, json!("module")),
            (REPLICAS_CONTROL, json!("true")),
        ] {
            assert!(!is_peer(&labelled(key, value.clone()), "dev"), "{key} {value}");
        }
        assert!(is_peer(&labelled(REPLICAS_CONTROL, json!("false")), "dev"));
    }

    #[test]
    fn a_deployment_has_one_replica_for_each_base_that_matches() {
        let nodes = [node("a"), node("b"), node("a"), node("c")];
        let change = |zones: &[&str], replicas| change(&deployment("cart", 1, zones, replicas), &nodes);
        assert_eq!((change(&["a"], 1), change(&["a"], 2), change(&["a", "c"], 2)), (Some(2), None, Some(3)));
        assert_eq!(change(&["x"], 2), Some(0));
    }

    #[test]
    fn a_baseline_has_the_containers_of_the_oldest_deployment_first() {
        let deployments = [
            deployment("new", 9, &["a"], 1),
            deployment("other", 1, &["b"], 1),
            deployment("old", 3, &["a", "b"], 1),
        ];
        let names = |zone: &str| {
            let containers = baseline(&deployments, &node(zone));
            containers.into_iter().map(|container| container.name).collect::<Vec<_>>()
        };
        assert_eq!(names("a"), ["old", "new"]);
        assert_eq!(names("b"), ["other", "old"]);
        assert!(names("c").is_empty());
    }
}
