//! The fields of a VIF that a result contains, read from the form of `os_vif`.

use std::net::IpAddr;

use serde_json::{Value, json};

use crate::version::Version;

/// The key of the fields in the JSON of an `os_vif` object.
const DATA: &str = "versioned_object.data";

/// Converts the default VIF of a pod in `os_vif`'s form to the result of ADD in the CNI `version` (CNI specification, "ADD Success"); `None`
/// if a required field is missing. `interface` is the name in the container, `netns` its namespace. `mtu` exists since version 1.1.0, and
/// the `version` of an address until 0.4.0.
pub(crate) fn result(version: Version, vif: &Value, interface: &str, netns: &str) -> Option<Value> {
    let class = vif["versioned_object.name"].as_str()?;
    let vif = &vif[DATA];
    let network = &vif["network"][DATA];
    let mut in_pod = json!({ "name": interface, "mac": vif["address"].as_str()?, "sandbox": netns });
    if let Some(mtu) = network["mtu"].as_u64().filter(|_| version >= Version::V1_1_0) {
        in_pod["mtu"] = mtu.into();
    }
    // A plugin later in the chain finds the interface on the node, the only one without a sandbox, by its place before the other.
    let mut interfaces = Vec::new();
    if matches!(class, "VIFBridge" | "VIFOpenVSwitch") {
        interfaces.push(json!({ "name": host_interface(vif["id"].as_str()?) }));
    }
    let index = interfaces.len();
    interfaces.push(in_pod);
    let (mut ips, mut routes, mut nameservers) = (Vec::new(), Vec::new(), Vec::new());
    for subnet in objects(&network["subnets"]) {
        let (_, prefix) = subnet["cidr"].as_str()?.split_once('/')?;
        let gateway = subnet["gateway"].as_str().and_then(|gateway| gateway.parse::<IpAddr>().ok());
        for ip in objects(&subnet["ips"]) {
            let address: IpAddr = ip["address"].as_str()?.parse().ok()?;
            let mut ip = json!({ "address": format!("{address}/{prefix}"), "interface": index });
            if version < Version::V1_0_0 {
                ip["version"] = if address.is_ipv4() { "4" } else { "6" }.into();
            }
            if let Some(gateway) = gateway.filter(|gateway| gateway.is_ipv4() == address.is_ipv4()) {
                ip["gateway"] = gateway.to_string().into();
            }
            ips.push(ip);
        }
        for route in objects(&subnet["routes"]) {
            routes.push(json!({ "dst": route["cidr"], "gw": route["gateway"] }));
        }
        if let Some(gateway) = gateway {
            let everything = if gateway.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
            routes.push(json!({ "dst": everything, "gw": gateway.to_string() }));
        }
        nameservers.extend(subnet["dns"].as_array().cloned().unwrap_or_default());
    }
    Some(json!({ "cniVersion": version.name(), "interfaces": interfaces, "ips": ips, "routes": routes,
        "dns": { "nameservers": nameservers } }))
}

/// Returns the fields of each object in `list`, a list object of `os_vif`.
fn objects(list: &Value) -> impl Iterator<Item = &Value> {
    list[DATA]["objects"].as_array().into_iter().flatten().map(|object| &object[DATA])
}

/// Returns the name of the interface on the node: `tap` and the first 11 characters of the port's id.
fn host_interface(id: &str) -> String {
    format!("tap{}", id.chars().take(11).collect::<String>())
}
