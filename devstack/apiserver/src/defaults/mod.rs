//! Default values that the server sets.

mod pod;
mod policy;
mod service;
mod workload;

use serde_json::{Map, Value, json};

pub(crate) use service::{allocate_addresses, carry_addresses};

use crate::object::{map_mut, meta, meta_mut};

/// Fills in a created or updated object of a built-in kind. Filling in twice changes nothing.
pub(crate) fn fill(kind: &str, object: &mut Value) {
    match kind {
        "Pod" => pod::fill_spec(entry(object, "spec")),
        "Service" => service::fill(object),
        "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" => workload::fill(kind, object),
        "NetworkPolicy" => policy::fill(entry(object, "spec")),
        "Namespace" => namespace(object),
        "Endpoints" => endpoints(object),
        "EndpointSlice" => {
            ports(object.get_mut("ports"));
            for endpoint in maps(object.get_mut("endpoints")) {
                default(endpoint, "conditions", json!({}));
            }
        }
        "Secret" => secret(object),
        "CustomResourceDefinition" => crate::custom::fill(object),
        _ => {}
    }
}

/// Admission of a new object.
pub(crate) fn admit(kind: &str, object: &mut Value) {
    match kind {
        "Pod" => pod::admit(entry(object, "spec")),
        "DaemonSet" => {
            let annotations = map_mut(meta_mut(object).entry("annotations").or_insert(Value::Null));
            default(annotations, "deprecated.daemonset.template.generation", "1");
        }
        _ => {}
    }
}

/// The status a new object starts with, where the server and not the client decides it.
pub(crate) fn initial_status(kind: &str, object: &Value) -> Option<Value> {
    match kind {
        "Pod" => Some(json!({"phase": "Pending", "qosClass": pod::quality(&object["spec"])})),
        "Namespace" => Some(json!({"phase": "Active"})),
        "Service" => Some(json!({"loadBalancer": {}})),
        "ReplicaSet" => Some(json!({"replicas": 0})),
        "StatefulSet" => Some(json!({"availableReplicas": 0, "replicas": 0})),
        "DaemonSet" => Some(json!({
            "currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0,
        })),
        "Deployment" => Some(json!({})),
        _ => None,
    }
}

/// Sets a field that is absent.
fn default(map: &mut Map<String, Value>, field: &str, value: impl Into<Value>) {
    let entry = map.entry(field).or_insert(Value::Null);
    if entry.is_null() {
        *entry = value.into();
    }
}

/// A field as a map, made where it is absent.
fn entry<'a>(object: &'a mut Value, field: &str) -> &'a mut Map<String, Value> {
    map_mut(map_mut(object).entry(field).or_insert(Value::Null))
}

/// The elements of a list that are maps.
fn maps(list: Option<&mut Value>) -> impl Iterator<Item = &mut Map<String, Value>> {
    list.and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

fn ports(list: Option<&mut Value>) {
    for port in maps(list) {
        default(port, "protocol", "TCP");
        default(port, "name", "");
    }
}

fn endpoints(object: &mut Value) {
    for subset in maps(object.get_mut("subsets")) {
        for port in maps(subset.get_mut("ports")) {
            default(port, "protocol", "TCP");
        }
    }
}

fn namespace(object: &mut Value) {
    let name = meta(object, "name").to_owned();
    let labels = map_mut(meta_mut(object).entry("labels").or_insert(Value::Null));
    labels.insert("kubernetes.io/metadata.name".into(), name.into());
    default(entry(object, "spec"), "finalizers", json!(["kubernetes"]));
}

fn secret(object: &mut Value) {
    use base64::Engine as _;
    let fields = map_mut(object);
    default(fields, "type", "Opaque");
    if let Some(Value::Object(texts)) = fields.remove("stringData") {
        let data = map_mut(fields.entry("data").or_insert(Value::Null));
        for (name, text) in texts {
            let bytes = base64::engine::general_purpose::STANDARD.encode(text.as_str().unwrap_or_default());
            data.insert(name, bytes.into());
        }
    }
}

#[cfg(test)]
mod tests;
