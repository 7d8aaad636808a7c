//! The result of a command, merged with those of the plugins before this one in a chain.

use serde_json::{Value, json};

use crate::version::Version;

/// Merges `result` into `previous`, the result of the plugins before this one in the chain, so that the next plugin gets both. The indexes
/// of interfaces in `result` are shifted by the number of previous interfaces. Without `previous`, only sets the version
/// in `result` and returns it.
pub fn merge(version: Version, previous: Option<&Value>, mut result: Value) -> Value {
    result["cniVersion"] = version.name().into();
    let Some(previous) = previous else { return result };
    let offset = previous["interfaces"].as_array().map_or(0, Vec::len);
    for ip in result["ips"].as_array_mut().into_iter().flatten() {
        if let Some(index) = ip["interface"].as_u64() {
            ip["interface"] = json!(index + offset as u64);
        }
    }
    for key in ["interfaces", "ips", "routes"] {
        let before = previous[key].as_array().cloned().unwrap_or_default();
        let ours = result[key].as_array().cloned().unwrap_or_default();
        result[key] = before.into_iter().chain(ours).collect();
    }
    if result["dns"]["nameservers"].as_array().is_none_or(Vec::is_empty) && previous["dns"].is_object() {
        result["dns"] = previous["dns"].clone();
    }
    result
}
