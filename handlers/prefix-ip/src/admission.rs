//! The admission of pods: which pods need an address of their node, and the change that makes them request it.
//!
//! A pod needs an address if it can run only on labelled nodes. The node selector of a `RuntimeClass` counts too: the API server has
//! merged it into the pod before it calls a webhook.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelectorTerm, Pod, PodSpec};
use serde_json::{Value, json};

use crate::address::PRIVATE_IPV4_ADDRESS;

/// The key of the label with the operating system of a node, and the former key of that label.
const OS: (&str, &str) = ("kubernetes.io/os", "beta.kubernetes.io/os");
/// The JSON Pointer (RFC 6901) to the resources of the first container of a pod.
const RESOURCES: &str = "/spec/containers/0/resources";

/// The error of a label of nodes that is not of the form `key=value`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`prefix_ip.node_label` has no `=`; write `key=value`, as in `kubernetes.io/os=windows`")]
pub struct NodeLabelError;

/// Returns the key and the value of a label of nodes, from the form `key=value`. The value may be empty.
pub fn node_label(text: &str) -> Result<(String, String), NodeLabelError> {
    let (key, value) = text.split_once('=').filter(|(key, _)| !key.is_empty()).ok_or(NodeLabelError)?;
    Ok((key.to_owned(), value.to_owned()))
}

/// The rules that decide if a pod needs an address of its node: it requests one, or can run only on nodes with a label.
#[derive(Clone, Debug)]
pub struct PodAdmission {
    /// The key of the label of the nodes whose pods get addresses.
    pub(crate) key: String,
    /// The value of the label of the nodes whose pods get addresses.
    pub(crate) value: String,
}

impl PodAdmission {
    /// Creates the admission for pods of nodes with a label, given as its key and its value.
    pub fn new((key, value): (String, String)) -> Self {
        Self { key, value }
    }

    /// Returns `true` if the pod can run only on labelled nodes and needs an address there: it names the label in its node selector or in
    /// every term of its required node affinity, or, for the label `kubernetes.io/os`, the operating system in `spec.os`. A pod with
    /// `hostNetwork` needs none.
    pub fn selects(&self, pod: &Pod) -> bool {
        let Some(spec) = pod.spec.as_ref().filter(|spec| spec.host_network != Some(true)) else {
            return false;
        };
        let selector = spec.node_selector.as_ref();
        let is_os = self.key == OS.0;
        selector.is_some_and(|selector| self.is_named(selector))
            || (is_os && spec.os.as_ref().is_some_and(|os| os.name == self.value))
            || self.is_required(spec)
    }

    /// Returns `true` if the pod needs an address: it requests one, or can run only on labelled nodes.
    pub fn needs_address(&self, pod: &Pod) -> bool {
        requests_address(pod) || self.selects(pod)
    }

    /// Returns the JSON patch (RFC 6902) that makes the first container of the pod request an address; `None` if the pod needs none, or a
    /// container requests one.
    pub fn patch(&self, pod: &Pod) -> Option<Vec<Value>> {
        if requests_address(pod) || !self.selects(pod) {
            return None;
        }
        let first = pod.spec.as_ref()?.containers.first()?;
        let one = json!({ PRIVATE_IPV4_ADDRESS: "1" });
        let add = |path: String, value: Value| json!({ "op": "add", "path": path, "value": value });
        let Some(resources) = &first.resources else {
            return Some(vec![add(RESOURCES.to_owned(), json!({ "limits": one, "requests": one }))]);
        };
        let key = PRIVATE_IPV4_ADDRESS.replace('/', "~1");
        let parts = [("limits", &resources.limits), ("requests", &resources.requests)];
        let patch = parts.map(|(part, present)| match present {
            Some(_) => add(format!("{RESOURCES}/{part}/{key}"), json!("1")),
            None => add(format!("{RESOURCES}/{part}"), one.clone()),
        });
        Some(patch.into())
    }

    /// Returns `true` if these labels include the configured label of nodes, under its present or its former key.
    fn is_named(&self, labels: &BTreeMap<String, String>) -> bool {
        let former = (self.key == OS.0).then_some(OS.1);
        let mut keys = [self.key.as_str()].into_iter().chain(former);
        keys.any(|key| labels.get(key) == Some(&self.value))
    }

    /// Returns `true` if the required node affinity admits labelled nodes only: each of its alternative terms requires the label.
    fn is_required(&self, spec: &PodSpec) -> bool {
        let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let required =
            affinity.and_then(|node| node.required_during_scheduling_ignored_during_execution.as_ref());
        let requires = |term: &NodeSelectorTerm| {
            term.match_expressions.iter().flatten().any(|expression| {
                let values = expression.values.as_deref().unwrap_or_default();
                let labels = values.iter().map(|value| (expression.key.clone(), value.clone()));
                expression.operator == "In" && values.len() == 1 && self.is_named(&labels.collect())
            })
        };
        required.is_some_and(|required| {
            !required.node_selector_terms.is_empty() && required.node_selector_terms.iter().all(requires)
        })
    }
}

/// Returns `true` if a container of the pod has the resource `vpc.amazonaws.com/PrivateIPv4Address` in its requests or limits.
pub(crate) fn requests_address(pod: &Pod) -> bool {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut resources = containers.filter_map(|container| container.resources.as_ref());
    resources.any(|resources| {
        let mut all = [&resources.limits, &resources.requests].into_iter().flatten();
        all.any(|quantities| quantities.contains_key(PRIVATE_IPV4_ADDRESS))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::from_value;

    use super::*;

    fn admission() -> PodAdmission {
        PodAdmission::new(("kubernetes.io/os".to_owned(), "windows".to_owned()))
    }

    fn pod(spec: &Value) -> Pod {
        let mut whole = json!({ "containers": [{ "name": "a", "resources": {} }, { "name": "b" }] });
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        from_value(json!({ "metadata": { "name": "web" }, "spec": whole })).unwrap()
    }

    fn affinity(terms: &Value) -> Value {
        let required = json!({ "nodeSelectorTerms": terms });
        json!({ "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": required } } })
    }

    fn expression(key: &str, operator: &str, values: &[&str]) -> Value {
        json!({ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] })
    }

    #[test]
    fn a_pod_that_can_run_only_on_labelled_nodes_needs_an_address() {
        let windows = expression("kubernetes.io/os", "In", &["windows"]);
        let other = expression("zone", "In", &["a"]);
        for spec in [
            json!({ "nodeSelector": { "kubernetes.io/os": "windows" } }),
            json!({ "nodeSelector": { "beta.kubernetes.io/os": "windows", "zone": "a" } }),
            json!({ "os": { "name": "windows" } }),
            affinity(&json!([windows])),
        ] {
            assert!(admission().selects(&pod(&spec)), "{spec}");
        }
        for spec in [
            json!({}),
            json!({ "nodeSelector": { "kubernetes.io/os": "linux" } }),
            json!({ "nodeSelector": { "kubernetes.io/os": "windows" }, "hostNetwork": true }),
            json!({ "os": { "name": "linux" } }),
            affinity(&json!([windows, other])),
            affinity(&json!([])),
            affinity(&json!([expression("kubernetes.io/os", "In", &["windows", "linux"])])),
            affinity(&json!([expression("kubernetes.io/os", "NotIn", &["windows"])])),
        ] {
            assert!(!admission().selects(&pod(&spec)), "{spec}");
        }
    }

    #[test]
    fn only_the_label_of_the_operating_system_has_other_names() {
        let gpu = PodAdmission::new(("pool".to_owned(), "windows".to_owned()));
        assert!(gpu.selects(&pod(&json!({ "nodeSelector": { "pool": "windows" } }))));
        assert!(!gpu.selects(&pod(&json!({ "os": { "name": "windows" } }))));
        assert!(!gpu.selects(&pod(&json!({ "nodeSelector": { "beta.kubernetes.io/os": "windows" } }))));
    }

    #[test]
    fn a_pod_that_requests_an_address_or_needs_none_is_not_changed() {
        let requesting = json!({ "nodeSelector": { "kubernetes.io/os": "windows" }, "containers": [
            { "name": "a" }, { "name": "b", "resources": { "limits": { PRIVATE_IPV4_ADDRESS: "2" } } },
        ] });
        assert_eq!(admission().patch(&pod(&requesting)), None);
        assert!(admission().needs_address(&pod(&requesting)));
        assert_eq!(admission().patch(&pod(&json!({}))), None);
        let empty = json!({ "nodeSelector": { "kubernetes.io/os": "windows" }, "containers": [] });
        assert_eq!(admission().patch(&pod(&empty)), None);
    }

    #[test]
    fn a_label_has_a_key_and_a_value_and_only_the_value_may_be_empty() {
        assert_eq!(node_label("kubernetes.io/os=windows"), Ok(("kubernetes.io/os".into(), "windows".into())));
        assert_eq!(node_label("pool="), Ok(("pool".into(), String::new())));
        for wrong in ["windows", "=windows"] {
            assert_eq!(node_label(wrong), Err(NodeLabelError), "{wrong}");
        }
    }

    fn quantities() -> impl Strategy<Value = Option<Value>> {
        prop::option::of(
            prop::collection::btree_map("cpu|memory|a/b", "[1-9]", 0..3).prop_map(|map| json!(map)),
        )
    }

    proptest! {
        #[test]
        fn the_patch_adds_the_resource_and_nothing_else_and_is_needed_once(
            resources in prop::option::of((quantities(), quantities())),
        ) {
            let mut container = json!({ "name": "a", "image": "i" });
            if let Some((limits, requests)) = resources {
                container["resources"] = json!({});
                for (part, value) in [("limits", limits), ("requests", requests)] {
                    if let Some(value) = value {
                        container["resources"][part] = value;
                    }
                }
            }
            let spec = json!({ "nodeSelector": { "kubernetes.io/os": "windows" }, "containers": [container] });
            let before = pod(&spec);
            let patch = json_patch::Patch(from_value(json!(admission().patch(&before).unwrap())).unwrap());
            let mut after = json!({ "spec": spec });
            json_patch::patch(&mut after, &patch).unwrap();
            let resources = &mut after["spec"]["containers"][0]["resources"];
            for part in ["limits", "requests"] {
                prop_assert_eq!(&resources[part][PRIVATE_IPV4_ADDRESS], "1");
            }
            let changed: Pod = from_value(after.clone()).unwrap();
            prop_assert_eq!(admission().patch(&changed), None);
            for part in ["limits", "requests"] {
                after["spec"]["containers"][0]["resources"][part].as_object_mut().unwrap().remove(PRIVATE_IPV4_ADDRESS);
            }
            let normal = |pod: &Value| {
                let mut containers = pod["spec"]["containers"].clone();
                let resources = containers[0]["resources"].take();
                let full = |part: &str| resources[part].as_object().cloned().unwrap_or_default();
                (containers, full("limits"), full("requests"))
            };
            prop_assert_eq!(normal(&after), normal(&json!({ "spec": spec })));
        }
    }
}
