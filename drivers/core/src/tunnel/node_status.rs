//! The health report of a machine.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeCondition, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::{Deserialize, Serialize};

/// The health report of a machine. It becomes the status, labels, annotations and taints of the node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeStatusData {
    /// The resources of the machine, by name, such as `memory`.
    pub resources: BTreeMap<String, NodeResource>,
    /// Labels of the node.
    pub custom_labels: BTreeMap<String, String>,
    /// Annotations of the node.
    pub custom_annotations: BTreeMap<String, String>,
    /// Taints of the node.
    pub custom_taints: Vec<Taint>,
    /// Conditions of the node. Each replaces the default condition of its type.
    pub custom_conditions: Vec<NodeCondition>,
}

/// The amount of one resource of a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeResource {
    /// The total amount.
    pub capacity: Quantity,
    /// The amount that is available to pods.
    pub allocatable: Quantity,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_report_is_plain_data() {
        let sample = json!({
            "resources": { "memory": { "capacity": "1024Ki", "allocatable": "512Ki" } },
            "custom_labels": { "base.koupleless.io/stack": "java" },
            "custom_annotations": { "example.com/zone": "a" },
            "custom_taints": [{ "key": "example.com/drain", "value": "True", "effect": "NoExecute" }],
            "custom_conditions": [{ "type": "MemoryPressure", "status": "True", "reason": "MetaspaceFull" }],
        });
        let status: NodeStatusData = serde_json::from_value(sample.clone()).unwrap();
        assert_eq!(status.resources["memory"].allocatable.0, "512Ki");
        assert_eq!(serde_json::to_value(&status).unwrap(), sample);
    }

    #[test]
    fn keys_without_a_value_may_be_missing() {
        assert_eq!(serde_json::from_str::<NodeStatusData>("{}").unwrap(), NodeStatusData::default());
    }
}
