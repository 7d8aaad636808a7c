//! The JSON of the health of a base, and its conversion to the status of a node.

use k8s_openapi::api::core::v1::NodeCondition;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::Deserialize;
use staffetta_driver::tunnel::{NodeResource, NodeStatusData};

use super::{STACK, reason};

/// The type of the node condition that is true if the base reports that it is activated.
const BASE_ACTIVATED: &str = "BaseActivated";

/// The health of a base (`HealthInfo`).
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct HealthInfo {
    health_data: HealthData,
}

/// The part of a health report with the JVM and the state of the base (`healthData`).
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct HealthData {
    jvm: Jvm,
    master_biz_info: MasterState,
}

/// The metaspace of the JVM, where the classes of modules lie, in bytes. -1 stands for an unknown or unlimited size.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Jvm {
    #[serde(rename = "java max metaspace")]
    max: Option<f64>,
    #[serde(rename = "java committed metaspace")]
    committed: Option<f64>,
}

/// The state of the base itself (`masterBizInfo`).
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct MasterState {
    biz_state: String,
}

/// The maximum size of a metaspace in bytes, 1 EiB. A larger one is no size, and cannot be a quantity of Kubernetes.
const MAX_METASPACE: f64 = 1_152_921_504_606_846_976.0;

/// Returns the status of the node of a base. The metaspace counts as the memory of the node; if the size of the metaspace is unknown, the
/// node reports no memory.
pub(crate) fn node_status(health: HealthInfo) -> NodeStatusData {
    let HealthInfo { health_data: HealthData { jvm, master_biz_info } } = health;
    let mut status = NodeStatusData::default();
    status.custom_labels.insert(STACK.0.to_owned(), STACK.1.to_owned());
    if let Some(max) = jvm.max.filter(|max| (0.0..=MAX_METASPACE).contains(max)) {
        let free = max - jvm.committed.filter(|committed| *committed >= 0.0).unwrap_or_default();
        let memory = NodeResource { capacity: kibibytes(max), allocatable: kibibytes(free) };
        status.resources.insert("memory".to_owned(), memory);
    }
    let state = reason(&master_biz_info.biz_state);
    if !state.is_empty() {
        let activated = state.eq_ignore_ascii_case("activated");
        status.custom_conditions.push(NodeCondition {
            type_: BASE_ACTIVATED.to_owned(),
            status: if activated { "True" } else { "False" }.to_owned(),
            reason: Some(state),
            ..NodeCondition::default()
        });
    }
    status
}

/// Converts bytes to a quantity in whole kibibytes; a negative number counts as 0.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the conversion saturates")]
fn kibibytes(bytes: f64) -> Quantity {
    Quantity(format!("{}Ki", (bytes / 1024.0) as u64))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn status(jvm: &Value, state: &str) -> NodeStatusData {
        let data =
            json!({ "jvm": jvm, "cpu": { "total used (%)": 1.5 }, "masterBizInfo": { "bizState": state } });
        node_status(serde_json::from_value(json!({ "healthData": data })).unwrap())
    }

    #[test]
    fn the_metaspace_is_the_memory_of_the_node() {
        let jvm = |max: i64, committed: i64| {
            let jvm = json!({ "java max metaspace": max, "java committed metaspace": committed, "java used metaspace": 9 });
            let resources = status(&jvm, "").resources;
            let text = |memory: &NodeResource| format!("{} {}", memory.capacity.0, memory.allocatable.0);
            resources.get("memory").map(text).unwrap_or_default()
        };
        assert_eq!(jvm(10_240, 1024), "10Ki 9Ki");
        assert_eq!(jvm(1024, 10_240), "1Ki 0Ki");
        assert_eq!(jvm(10_240, -1), "10Ki 10Ki");
        assert_eq!(jvm(-1, 1024), "");
        let huge = status(&json!({ "java max metaspace": 1e300 }), "");
        assert!(huge.resources.is_empty(), "{:?}", huge.resources);
    }

    #[test]
    fn the_state_of_the_base_is_a_condition() {
        let condition = |state| {
            let conditions = status(&json!({}), state).custom_conditions;
            conditions.into_iter().map(|one| (one.status, one.reason.unwrap_or_default())).next()
        };
        assert_eq!(condition("ACTIVATED"), Some(("True".to_owned(), "ACTIVATED".to_owned())));
        assert_eq!(condition("BROKEN"), Some(("False".to_owned(), "BROKEN".to_owned())));
        assert_eq!(condition(""), None);
    }
}
