//! The scheduler: it binds a pod without a node to the node with the fewest pods, of those that are ready, that the pod selects,
//! whose taints it tolerates, and where no pod of its namespace is that its required anti-affinity excludes.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod, PodAffinityTerm, Taint, Toleration};
use kube::ResourceExt;
use kube::core::{Selector, SelectorExt};

use crate::call::Call;
use crate::pods::{is_active, is_finished, node};
use crate::shell::Plan;

/// The scheduler whose pods these are.
const NAME: &str = "default-scheduler";

/// The scheduler of a cluster.
#[derive(Default)]
pub(crate) struct Scheduler {
    /// The nodes of the pods that were bound, by UID, until the view shows it. A decision by a view that lags behind would
    /// otherwise give a second pod a place that is taken.
    bound: BTreeMap<String, String>,
}

impl Scheduler {
    /// Returns the bindings that are due.
    pub(crate) fn plan(&mut self, pods: &[Arc<Pod>], nodes: &[Arc<Node>]) -> Plan {
        let mut named: BTreeMap<_, _> = nodes.iter().map(|node| (node.name_any(), node)).collect();
        named.retain(|_, node| takes_pods(node));
        let before = std::mem::take(&mut self.bound);
        let bound = |pod: &Pod| before.get(&pod.uid()?).filter(|node| named.contains_key(*node));
        let mut placed: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
        for pod in pods.iter().filter(|pod| !is_finished(pod)) {
            if let Some(node) = node(pod).or_else(|| bound(pod).map(String::as_str)) {
                placed.entry(node).or_default().push(pod);
            }
        }
        let mut plan = Plan::default();
        for pod in pods.iter().filter(|pod| waits(pod)) {
            let node = bound(pod).map(String::as_str).or_else(|| {
                let node = choose(pod, &named, &placed)?;
                placed.entry(node).or_default().push(pod);
                Some(node)
            });
            if let Some(node) = node {
                self.bound.extend(pod.uid().map(|uid| (uid, node.to_owned())));
                plan.calls.push(Call::bind(pod, node));
            }
        }
        plan
    }
}

/// Returns the node with the fewest pods of those on which the pod may run.
fn choose<'a>(
    pod: &Pod,
    nodes: &'a BTreeMap<String, &Arc<Node>>,
    placed: &BTreeMap<&str, Vec<&Pod>>,
) -> Option<&'a str> {
    let on = |name: &str| placed.get(name).map_or(&[][..], Vec::as_slice);
    let populated: Vec<_> = nodes.iter().map(|(name, node)| (&***node, on(name))).collect();
    let excluded = excluded_topologies(pod, &populated);
    let fits = |name: &str, node: &Node| {
        on(name).len() < room(node)
            && is_asked_for(node, pod)
            && is_tolerated(node, pod)
            && !excluded.iter().any(|(key, value)| node.labels().get(*key) == Some(value))
    };
    let fit = nodes.iter().filter(|(name, node)| fits(name, node));
    fit.min_by_key(|(name, _)| on(name).len()).map(|(name, _)| name.as_str())
}

fn waits(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    let scheduler = spec.and_then(|spec| spec.scheduler_name.as_deref()).unwrap_or(NAME);
    let gated = spec.and_then(|spec| spec.scheduling_gates.as_ref()).is_some_and(|gates| !gates.is_empty());
    is_active(pod) && node(pod).is_none() && scheduler == NAME && !gated
}

fn takes_pods(node: &Node) -> bool {
    let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false);
    node.metadata.deletion_timestamp.is_none() && !cordoned && is_ready(node)
}

/// Returns `true` if the node is ready.
pub(crate) fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// The maximum number of pods of the node; unlimited if not stated.
fn room(node: &Node) -> usize {
    let pods =
        node.status.as_ref().and_then(|status| status.allocatable.as_ref()?.get("pods")?.0.parse().ok());
    pods.unwrap_or(usize::MAX)
}

fn is_asked_for(node: &Node, pod: &Pod) -> bool {
    let wanted = pod.spec.iter().flat_map(|spec| spec.node_selector.iter().flatten());
    wanted.into_iter().all(|(key, value)| node.labels().get(key) == Some(value))
}

/// Returns the labels of nodes, with their values, where the required anti-affinity of the pod lets it not run: those of the
/// nodes with a pod of its namespace that a term selects.
fn excluded_topologies<'a>(pod: &'a Pod, nodes: &[(&'a Node, &[&Pod])]) -> Vec<(&'a str, &'a String)> {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()?.pod_anti_affinity.as_ref());
    let terms = affinity
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_deref())
        .unwrap_or_default();
    let selects = |term: &PodAffinityTerm, other: &Pod| {
        let selector = term.label_selector.clone().and_then(|selector| Selector::try_from(selector).ok());
        other.namespace() == pod.namespace()
            && selector.is_some_and(|selector| selector.matches(other.labels()))
    };
    let excluded = terms.iter().flat_map(|term| {
        let taken = nodes.iter().filter(|(_, pods)| pods.iter().any(|other| selects(term, other)));
        taken.filter_map(|(node, _)| Some((&*term.topology_key, node.labels().get(&term.topology_key)?)))
    });
    excluded.collect()
}

/// Returns `true` if the pod tolerates all taints of the node.
fn is_tolerated(node: &Node, pod: &Pod) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let mut taints = taints.filter(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"));
    taints.all(|taint| {
        let tolerations = pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten());
        tolerations.into_iter().any(|toleration| tolerates(toleration, taint))
    })
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let any = |wanted: Option<&str>| wanted.unwrap_or_default().is_empty();
    let effect = toleration.effect.as_deref();
    let exists = toleration.operator.as_deref() == Some("Exists");
    (any(effect) || effect == Some(&taint.effect))
        && ((exists && any(toleration.key.as_deref())) || toleration.key.as_deref() == Some(&taint.key))
        && (exists
            || toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::call::Verb;
    use crate::testing::shared;

    fn node_named(name: &str, ready: &str) -> Arc<Node> {
        shared(json!({
            "metadata": { "name": name, "labels": { "disk": name } },
            "status": { "allocatable": { "pods": "3" }, "conditions": [{ "type": "Ready", "status": ready }] },
        }))
    }

    fn pod_named(name: &str, spec: &Value) -> Arc<Pod> {
        let mut pod = json!({ "metadata": { "namespace": "shop", "name": name, "uid": name }, "spec": { "containers": [] } });
        pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        shared(pod)
    }

    fn plan(pods: &[Arc<Pod>], nodes: &[Arc<Node>]) -> Plan {
        Scheduler::default().plan(pods, nodes)
    }

    fn places(plan: &Plan) -> Vec<(&str, &str)> {
        let place = |call| match call {
            &Call { ref name, verb: Verb::Bind(ref body), .. } => {
                (name.as_str(), body["target"]["name"].as_str().unwrap())
            }
            other => panic!("{other:?}"),
        };
        plan.calls.iter().map(place).collect()
    }

    #[test]
    fn pods_go_round_among_the_ready_nodes() {
        let pods = ["a", "b", "c"].map(|name| pod_named(name, &json!({})));
        let nodes = [node_named("n1", "True"), node_named("n2", "True"), node_named("n3", "Unknown")];
        assert_eq!(places(&plan(&pods, &nodes)), [("a", "n1"), ("b", "n2"), ("c", "n1")]);
    }

    #[test]
    fn a_node_that_is_full_or_cordoned_or_not_asked_for_gets_no_pod() {
        let full: Vec<_> = ["x", "y", "z"].map(|name| pod_named(name, &json!({ "nodeName": "n1" }))).into();
        let waiting = pod_named("a", &json!({}));
        let choosy = pod_named("b", &json!({ "nodeSelector": { "disk": "n1" } }));
        let pods = [full, vec![waiting, choosy]].concat();
        assert_eq!(
            places(&plan(&pods, &[node_named("n1", "True"), node_named("n2", "True")])),
            [("a", "n2")]
        );
        let mut cordoned = node_named("n2", "True");
        Arc::make_mut(&mut cordoned).spec = serde_json::from_value(json!({ "unschedulable": true })).unwrap();
        assert_eq!(places(&plan(&pods, &[cordoned])), []);
    }

    #[test]
    fn pods_that_exclude_each_other_go_to_nodes_of_their_own() {
        let apart = json!({ "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
            { "topologyKey": "disk", "labelSelector": { "matchLabels": { "app": "cart" } } },
        ] } } });
        let labelled = |name: &str, spec: &Value, namespace: &str| {
            let mut pod = pod_named(name, spec);
            let metadata = &mut Arc::make_mut(&mut pod).metadata;
            metadata.labels = Some([("app".to_owned(), "cart".to_owned())].into());
            metadata.namespace = Some(namespace.to_owned());
            pod
        };
        let with = |spec: Value| {
            [&apart, &spec].into_iter().flat_map(|one| one.as_object().unwrap().clone()).collect()
        };
        let nodes = ["n1", "n2", "n3"].map(|name| node_named(name, "True"));
        let mut pods = vec![
            labelled("placed", &with(json!({ "nodeName": "n1" })), "shop"),
            labelled("elsewhere", &json!({ "nodeName": "n3" }), "other"),
            pod_named("busy", &json!({ "nodeName": "n2" })),
            pod_named("busier", &json!({ "nodeName": "n2" })),
        ];
        pods.extend(["a", "b", "c"].map(|name| labelled(name, &apart, "shop")));
        assert_eq!(places(&plan(&pods, &nodes)), [("a", "n3"), ("b", "n2")], "c waits for a fourth node");
        assert_eq!(places(&plan(&pods[..5], &nodes[..1])), []);
    }

    #[test]
    fn a_place_is_taken_before_the_view_shows_it() {
        let pods = ["a", "b", "c"].map(|name| pod_named(name, &json!({})));
        let nodes = ["n1", "n2", "n3"].map(|name| node_named(name, "True"));
        let mut scheduler = Scheduler::default();
        assert_eq!(places(&scheduler.plan(&pods[1..], &nodes[..2])), [("b", "n1"), ("c", "n2")]);
        assert_eq!(places(&scheduler.plan(&pods, &nodes)), [("a", "n3"), ("b", "n1"), ("c", "n2")]);
        let bound = pod_named("b", &json!({ "nodeName": "n1" }));
        let pods = [pods[0].clone(), bound, pods[2].clone()];
        assert_eq!(places(&scheduler.plan(&pods, &nodes[..2])), [("a", "n1"), ("c", "n2")], "n3 is gone");
    }

    #[test]
    fn a_node_with_a_taint_gets_only_pods_that_tolerate_it() {
        let mut node = node_named("n1", "True");
        let taint = json!({ "key": "edge", "value": "yes", "effect": "NoSchedule" });
        Arc::make_mut(&mut node).spec = serde_json::from_value(json!({ "taints": [taint] })).unwrap();
        let with = |name: &str, toleration: Value| pod_named(name, &json!({ "tolerations": [toleration] }));
        let pods = [
            pod_named("none", &json!({})),
            with("other", json!({ "key": "disk", "operator": "Exists" })),
            with("value", json!({ "key": "edge", "value": "no" })),
            with("effect", json!({ "key": "edge", "operator": "Exists", "effect": "NoExecute" })),
            with("same", json!({ "key": "edge", "value": "yes", "effect": "NoSchedule" })),
            with("any", json!({ "operator": "Exists" })),
        ];
        assert_eq!(places(&plan(&pods, &[Arc::clone(&node)])), [("same", "n1"), ("any", "n1")]);
        Arc::make_mut(&mut node).spec.as_mut().unwrap().taints.as_mut().unwrap()[0].effect =
            "PreferNoSchedule".into();
        assert_eq!(places(&plan(&pods[..1], &[node])), [("none", "n1")]);
    }

    #[test]
    fn pods_of_another_scheduler_gated_ones_and_placed_ones_are_left_alone() {
        let pods = [
            pod_named("a", &json!({ "schedulerName": "mine" })),
            pod_named("b", &json!({ "schedulingGates": [{ "name": "quota" }] })),
            pod_named("c", &json!({ "nodeName": "n1" })),
        ];
        assert_eq!(places(&plan(&pods, &[node_named("n1", "True")])), []);
    }
}
