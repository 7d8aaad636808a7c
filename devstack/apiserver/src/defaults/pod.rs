//! Default values of a pod spec, in a pod or in a pod template.

use serde_json::{Map, Value, json};

use super::{default, maps};
use crate::object::{is_empty, list};

pub(super) fn fill_spec(spec: &mut Map<String, Value>) {
    default(spec, "restartPolicy", "Always");
    default(spec, "terminationGracePeriodSeconds", 30);
    default(spec, "dnsPolicy", "ClusterFirst");
    default(spec, "schedulerName", "default-scheduler");
    default(spec, "securityContext", json!({}));
    let host_network = spec.get("hostNetwork").is_some_and(|host| host == true);
    for kind in ["initContainers", "containers"] {
        for container in maps(spec.get_mut(kind)) {
            fill_container(container, host_network);
        }
    }
}

/// Admission of a new pod: service account, priority, and tolerations for nodes that are not ready.
pub(super) fn admit(spec: &mut Map<String, Value>) {
    default(spec, "enableServiceLinks", true);
    default(spec, "serviceAccountName", "default");
    let account = spec["serviceAccountName"].clone();
    default(spec, "serviceAccount", account);
    default(spec, "priority", 0);
    default(spec, "preemptionPolicy", "PreemptLowerPriority");
    let mut tolerations = list(spec.get("tolerations").unwrap_or(&Value::Null)).to_vec();
    for taint in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        if !tolerations.iter().any(|toleration| toleration["key"] == taint || toleration["key"].is_null()) {
            tolerations.push(json!({
                "key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300,
            }));
        }
    }
    spec.insert("tolerations".into(), tolerations.into());
}

fn fill_container(container: &mut Map<String, Value>, host_network: bool) {
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let tag = image.rsplit('/').next().unwrap_or_default();
    let latest = !image.contains('@') && (tag.ends_with(":latest") || !tag.contains(':'));
    default(container, "imagePullPolicy", if latest { "Always" } else { "IfNotPresent" });
    default(container, "terminationMessagePath", "/dev/termination-log");
    default(container, "terminationMessagePolicy", "File");
    default(container, "resources", json!({}));
    if let Some(limits) = container["resources"].get("limits").and_then(Value::as_object).cloned()
        && let Some(resources) = container.get_mut("resources").and_then(Value::as_object_mut)
    {
        default(resources, "requests", json!({}));
        if let Some(request) = resources.get_mut("requests").and_then(Value::as_object_mut) {
            for (name, limit) in &limits {
                default(request, name, limit.clone());
            }
        }
    }
    for port in maps(container.get_mut("ports")) {
        default(port, "protocol", "TCP");
        if host_network && let Some(number) = port.get("containerPort").cloned() {
            default(port, "hostPort", number);
        }
    }
}

/// The quality of service that follows from what the containers ask for.
pub(super) fn quality(spec: &Value) -> &'static str {
    let containers = || ["initContainers", "containers"].into_iter().flat_map(|kind| list(&spec[kind]));
    let resources = |container: &Value, of: &str, name: &str| container["resources"][of][name].clone();
    let asks = |container: &Value| {
        ["requests", "limits"]
            .iter()
            .any(|of| ["cpu", "memory"].iter().any(|name| !is_empty(&resources(container, of, name))))
    };
    let guaranteed = |container: &Value| {
        ["cpu", "memory"].iter().all(|name| {
            let limit = resources(container, "limits", name);
            !is_empty(&limit) && limit == resources(container, "requests", name)
        })
    };
    if !containers().any(asks) {
        "BestEffort"
    } else if containers().all(guaranteed) {
        "Guaranteed"
    } else {
        "Burstable"
    }
}
