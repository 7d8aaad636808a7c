//! Default values of the kinds that create pods from a template.

use serde_json::{Map, Value, json};

use super::{default, entry, pod};
use crate::object::map_mut;

pub(super) fn fill(kind: &str, object: &mut Value) {
    let spec = entry(object, "spec");
    if let Some(template) = spec.get_mut("template") {
        pod::fill_spec(entry(template, "spec"));
    }
    if kind != "DaemonSet" {
        default(spec, "replicas", 1);
    }
    if kind != "ReplicaSet" {
        default(spec, "revisionHistoryLimit", 10);
    }
    match kind {
        "Deployment" => {
            default(spec, "progressDeadlineSeconds", 600);
            rolling(spec, "strategy", &[("maxUnavailable", json!("25%")), ("maxSurge", json!("25%"))]);
        }
        "StatefulSet" => {
            default(spec, "podManagementPolicy", "OrderedReady");
            default(spec, "serviceName", "");
            rolling(spec, "updateStrategy", &[("partition", json!(0))]);
            default(
                spec,
                "persistentVolumeClaimRetentionPolicy",
                json!({"whenDeleted": "Retain", "whenScaled": "Retain"}),
            );
        }
        "DaemonSet" => {
            rolling(spec, "updateStrategy", &[("maxUnavailable", json!(1)), ("maxSurge", json!(0))]);
        }
        _ => {}
    }
}

fn rolling(spec: &mut Map<String, Value>, field: &str, parameters: &[(&str, Value)]) {
    let strategy = map_mut(spec.entry(field).or_insert(Value::Null));
    default(strategy, "type", "RollingUpdate");
    if strategy["type"] == "RollingUpdate" {
        let rolling = map_mut(strategy.entry("rollingUpdate").or_insert(Value::Null));
        for (name, value) in parameters {
            default(rolling, name, value.clone());
        }
    }
}
