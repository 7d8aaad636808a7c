//! Default values of a network policy.

use serde_json::{Map, Value, json};

use super::{default, maps};

pub(super) fn fill(spec: &mut Map<String, Value>) {
    let egress = spec.get("egress").is_some_and(|rules| !crate::object::is_empty(rules));
    default(spec, "policyTypes", if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) });
    for direction in ["ingress", "egress"] {
        for rule in maps(spec.get_mut(direction)) {
            for port in maps(rule.get_mut("ports")) {
                default(port, "protocol", "TCP");
            }
        }
    }
}
