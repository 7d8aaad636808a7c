//! Default values of a service, and the allocation of its addresses and node ports.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use serde_json::{Map, Value, json};

use super::{default, entry, maps};
use crate::object::{Object, carry, is_empty, list};

/// The first address of 10.96.0.0/16 that is given out; what lies before is left to well-known services.
const FIRST_ADDRESS: u32 = u32::from_be_bytes([10, 96, 0, 16]);
const LAST_ADDRESS: u32 = u32::from_be_bytes([10, 96, 255, 254]);
const NODE_PORTS: std::ops::RangeInclusive<u64> = 30_000..=32_767;

fn kind(spec: &Map<String, Value>) -> &str {
    spec.get("type").and_then(Value::as_str).unwrap_or("ClusterIP")
}

pub(super) fn fill(object: &mut Value) {
    let spec = entry(object, "spec");
    default(spec, "type", "ClusterIP");
    default(spec, "sessionAffinity", "None");
    if spec["sessionAffinity"] == "ClientIP" {
        default(spec, "sessionAffinityConfig", json!({"clientIP": {"timeoutSeconds": 10800}}));
    }
    for port in maps(spec.get_mut("ports")) {
        default(port, "protocol", "TCP");
        if let Some(number) = port.get("port").cloned() {
            default(port, "targetPort", number);
        }
    }
    if kind(spec) == "ExternalName" {
        return;
    }
    default(spec, "internalTrafficPolicy", "Cluster");
    if matches!(kind(spec), "NodePort" | "LoadBalancer") {
        default(spec, "externalTrafficPolicy", "Cluster");
    }
    if kind(spec) == "LoadBalancer" {
        default(spec, "allocateLoadBalancerNodePorts", true);
    }
}

/// Gives the service a cluster IP and node ports that no other service has, where it needs them.
/// None when the range is used up.
pub(crate) fn allocate_addresses(service: &mut Value, others: &[Object]) -> Option<()> {
    let spec = entry(service, "spec");
    if kind(spec) == "ExternalName" {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"] {
            spec.remove(field);
        }
        return Some(());
    }
    if spec.get("clusterIP").and_then(Value::as_str).unwrap_or_default().is_empty() {
        let taken: BTreeSet<_> =
            others.iter().filter_map(|other| other["spec"]["clusterIP"].as_str()).collect();
        let free = (FIRST_ADDRESS..=LAST_ADDRESS)
            .map(|address| Ipv4Addr::from(address).to_string())
            .find(|address| !taken.contains(address.as_str()))?;
        spec.insert("clusterIP".into(), free.into());
    }
    let address = spec["clusterIP"].clone();
    default(spec, "clusterIPs", json!([address]));
    default(spec, "ipFamilies", json!(["IPv4"]));
    default(spec, "ipFamilyPolicy", "SingleStack");
    if matches!(kind(spec), "NodePort" | "LoadBalancer")
        && spec.get("allocateLoadBalancerNodePorts").is_none_or(|wanted| wanted == true)
    {
        node_ports(spec, others)?;
    }
    Some(())
}

/// Carries fields of the stored service over to an update: an update without addresses keeps them, and one that
/// changes the type drops what only the former type had, unless it changes that too.
pub(crate) fn carry_addresses(old: &Value, new: &mut Value) {
    let (Some(before), Some(spec)) = (old["spec"].as_object(), new["spec"].as_object_mut()) else { return };
    if kind(spec) != "ExternalName" && spec.get("clusterIP").is_none_or(is_empty) {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            carry(before, spec, field);
        }
    }
    let has_nodes = |kind: &str| ["NodePort", "LoadBalancer"].contains(&kind);
    if kind(before) == "LoadBalancer" && kind(spec) != "LoadBalancer" {
        spec.remove("allocateLoadBalancerNodePorts");
    }
    if has_nodes(kind(before)) && !has_nodes(kind(spec)) {
        spec.remove("externalTrafficPolicy");
        let ports = before.get("ports").unwrap_or(&Value::Null);
        let had = |number: &Value| list(ports).iter().any(|port| port["nodePort"] == *number);
        for port in maps(spec.get_mut("ports")) {
            if port.get("nodePort").is_some_and(had) {
                port.remove("nodePort");
            }
        }
    }
}

fn node_ports(spec: &mut Map<String, Value>, others: &[Object]) -> Option<()> {
    let used = |port: &Value| port["nodePort"].as_u64();
    let mut taken: BTreeSet<_> =
        others.iter().flat_map(|other| list(&other["spec"]["ports"])).filter_map(used).collect();
    taken.extend(list(&spec["ports"]).iter().filter_map(used));
    for port in maps(spec.get_mut("ports")) {
        if port.get("nodePort").and_then(Value::as_u64).unwrap_or_default() == 0 {
            let free = NODE_PORTS.into_iter().find(|number| !taken.contains(number))?;
            taken.insert(free);
            port.insert("nodePort".into(), free.into());
        }
    }
    Some(())
}
