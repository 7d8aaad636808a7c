//! Validation rules of individual kinds, as far as the product and its users need them.

use serde_json::Value;

use crate::object::{is_empty, list};
use crate::status::Cause;

/// Fields without which an object of the kind makes no sense.
const REQUIRED: &[(&str, &[&str])] = &[
    ("Pod", &["spec.containers"]),
    ("Deployment", &["spec.selector", "spec.template.spec.containers"]),
    ("ReplicaSet", &["spec.selector"]),
    ("StatefulSet", &["spec.selector", "spec.template.spec.containers"]),
    ("DaemonSet", &["spec.selector", "spec.template.spec.containers"]),
    ("EndpointSlice", &["addressType"]),
    (
        "CustomResourceDefinition",
        &["spec.group", "spec.scope", "spec.names.plural", "spec.names.kind", "spec.versions"],
    ),
];

/// Fields that stay as they were made.
const IMMUTABLE: &[(&str, &[&str])] = &[
    ("Deployment", &["spec.selector"]),
    ("ReplicaSet", &["spec.selector"]),
    ("StatefulSet", &["spec.selector", "spec.serviceName"]),
    ("DaemonSet", &["spec.selector"]),
    ("EndpointSlice", &["addressType"]),
    ("Secret", &["type"]),
    ("RoleBinding", &["roleRef"]),
    ("ClusterRoleBinding", &["roleRef"]),
];

/// Validates an object of this kind.
pub(crate) fn object(kind: &str, object: &Value) -> Vec<Cause> {
    let mut causes: Vec<_> = rows(REQUIRED, kind)
        .filter(|path| is_empty(at(object, path)))
        .map(|path| Cause::required(path, ""))
        .collect();
    match kind {
        "Pod" => containers(&object["spec"], "spec", &mut causes),
        "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" => {
            containers(&object["spec"]["template"]["spec"], "spec.template.spec", &mut causes);
            let labels = &object["spec"]["template"]["metadata"]["labels"];
            let wanted = object["spec"]["selector"]["matchLabels"].as_object();
            if causes.is_empty() && wanted.into_iter().flatten().any(|(name, value)| labels[name] != *value) {
                let why = "`selector` does not match template `labels`";
                causes.push(Cause::invalid("spec.template.metadata.labels", labels, why));
            }
        }
        "Service" => service(object, &mut causes),
        _ => {}
    }
    causes
}

/// Validates an update of this kind.
pub(crate) fn update(kind: &str, old: &Value, new: &Value) -> Vec<Cause> {
    let mut causes: Vec<_> = rows(IMMUTABLE, kind)
        .filter(|path| at(old, path) != at(new, path))
        .map(|path| Cause::invalid(path, at(new, path), "field is immutable"))
        .collect();
    if kind == "Pod" && fixed_part(&old["spec"]) != fixed_part(&new["spec"]) {
        let why = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
        causes.push(Cause::forbidden("spec", why));
    }
    if kind == "Service" {
        let (before, after) = (&old["spec"]["clusterIP"], &new["spec"]["clusterIP"]);
        if !is_empty(before) && before != after && new["spec"]["type"] != "ExternalName" {
            causes.push(Cause::invalid("spec.clusterIPs[0]", after, "may not change once set"));
        }
    }
    causes
}

/// A pod spec without what an update may change.
fn fixed_part(spec: &Value) -> Value {
    let mut spec = spec.clone();
    if let Some(fields) = spec.as_object_mut() {
        fields.remove("tolerations");
        fields.remove("activeDeadlineSeconds");
        for kind in ["containers", "initContainers"] {
            let containers = fields.get_mut(kind).and_then(Value::as_array_mut).into_iter().flatten();
            for container in containers.filter_map(Value::as_object_mut) {
                container.remove("image");
                container.remove("imagePullPolicy");
            }
        }
    }
    spec
}

fn containers(spec: &Value, at: &str, causes: &mut Vec<Cause>) {
    for (index, container) in list(&spec["containers"]).iter().enumerate() {
        for field in ["name", "image"] {
            if is_empty(&container[field]) {
                causes.push(Cause::required(&format!("{at}.containers[{index}].{field}"), ""));
            }
        }
    }
}

fn service(object: &Value, causes: &mut Vec<Cause>) {
    let spec = &object["spec"];
    let kind = spec["type"].as_str().unwrap_or_default();
    let kinds = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    if !kinds.contains(&kind) {
        causes.push(Cause::unsupported("spec.type", &spec["type"], &kinds));
    }
    if kind == "ExternalName" && is_empty(&spec["externalName"]) {
        causes.push(Cause::required("spec.externalName", ""));
    }
    let ports = list(&spec["ports"]);
    if ports.is_empty() && kind != "ExternalName" && spec["clusterIP"] != "None" {
        causes.push(Cause::required("spec.ports", ""));
    }
    for (index, port) in ports.iter().enumerate() {
        if !port["port"].as_u64().is_some_and(|port| (1..=65535).contains(&port)) {
            let why = "must be between 1 and 65535, inclusive";
            causes.push(Cause::invalid(&format!("spec.ports[{index}].port"), &port["port"], why));
        }
        if ports.len() > 1 && is_empty(&port["name"]) {
            causes.push(Cause::required(&format!("spec.ports[{index}].name"), ""));
        }
    }
}

fn rows(
    table: &[(&str, &'static [&'static str])],
    kind: &str,
) -> impl Iterator<Item = &'static &'static str> {
    table.iter().find(|(of, _)| *of == kind).map_or(&[][..], |(_, paths)| *paths).iter()
}

fn at<'a>(object: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(object, |value, step| &value[step])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_may_change_its_image_and_nothing_else_of_its_spec() {
        let old = json!({"spec": {"nodeName": "n", "containers": [{"name": "a", "image": "1"}]}});
        let image = json!({"spec": {"nodeName": "n", "containers": [{"name": "a", "image": "2"}]}});
        let node = json!({"spec": {"nodeName": "m", "containers": [{"name": "a", "image": "1"}]}});
        assert!(update("Pod", &old, &image).is_empty());
        assert_eq!(update("Pod", &old, &node).len(), 1);
    }

    #[test]
    fn a_cluster_ip_stays_until_the_service_becomes_external() {
        let old = json!({"spec": {"type": "ClusterIP", "clusterIP": "10.96.0.1"}});
        assert_eq!(update("Service", &old, &json!({"spec": {"clusterIP": "10.96.0.2"}})).len(), 1);
        assert!(update("Service", &old, &json!({"spec": {"type": "ExternalName"}})).is_empty());
    }

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(object("Pod", &json!({"spec": {}})).len(), 1);
        assert_eq!(object("Pod", &json!({"spec": {"containers": [{"name": "a"}]}})).len(), 1);
        assert_eq!(object("Service", &json!({"spec": {"type": "ClusterIP"}})).len(), 1);
        assert!(object("Service", &json!({"spec": {"type": "ClusterIP", "clusterIP": "None"}})).is_empty());
        let mismatch = json!({"spec": {"selector": {"matchLabels": {"a": "b"}},
            "template": {"spec": {"containers": [{"name": "a", "image": "b"}]}}}});
        assert_eq!(object("Deployment", &mismatch).len(), 1);
    }
}
