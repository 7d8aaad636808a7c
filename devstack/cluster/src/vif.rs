//! The annotation `openstack.org/kuryr-vif`, as read by the node that binds the interface.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::Value;

const ANNOTATION: &str = "openstack.org/kuryr-vif";

/// The addresses of the pod's default VIF, when that is active; nothing of an annotation that cannot be read.
pub(crate) fn active_addresses(pod: &Pod) -> Vec<IpAddr> {
    let text = pod.annotations().get(ANNOTATION).map_or("", String::as_str);
    let state: Value = serde_json::from_str(text).unwrap_or_default();
    let vif = data(&data(&state)["default_vif"]);
    if vif["active"] != true {
        return Vec::new();
    }
    let subnets = objects(&data(&vif["network"])["subnets"]);
    let addresses = subnets.flat_map(|subnet| objects(&subnet["ips"]));
    addresses.filter_map(|address| address["address"].as_str()?.parse().ok()).collect()
}

/// The content of an `os_vif` object, out of its envelope.
fn data(object: &Value) -> &Value {
    &object["versioned_object.data"]
}

/// The contents of the objects in an `os_vif` list.
fn objects(list: &Value) -> impl Iterator<Item = &Value> {
    data(list)["objects"].as_array().into_iter().flatten().map(data)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{pod, vif};

    fn read(annotation: &str) -> Vec<IpAddr> {
        active_addresses(&pod(json!({ "metadata": { "annotations": { ANNOTATION: annotation } } })))
    }

    #[test]
    fn an_active_vif_has_an_address_in_each_of_its_subnets() {
        let expected: [IpAddr; 2] = ["10.0.0.70".parse().unwrap(), "fd00::70".parse().unwrap()];
        assert_eq!(read(&vif(true, &["10.0.0.70", "fd00::70"])), expected);
    }

    #[test]
    fn a_vif_that_is_not_active_and_what_is_no_vif_have_none() {
        let nothing: [IpAddr; 0] = [];
        for text in [vif(false, &["10.0.0.70"]), String::new(), "{".into(), "[1]".into(), "{}".into()] {
            assert_eq!(read(&text), nothing, "{text}");
        }
        assert_eq!(active_addresses(&Pod::default()), nothing);
    }
}
