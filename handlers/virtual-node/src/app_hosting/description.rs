//! Converts the specification of a device into that of its node.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Taint;
use staffetta_driver::app_hosting::Password;

use super::device::DeviceDescription;
use crate::node::{NodeSpec, PROVIDER_TAINT};

/// The value of the label and the taint `virtual-kubelet.io/provider` of the nodes of devices.
const PROVIDER: &str = "cisco";

/// A label of the nodes of devices, as key and value. Cisco's provider writes the same label.
pub(super) const PROVIDER_LABEL: (&str, &str) = ("provider", "cisco-apphosting");

/// Returns the specification of the node `name` of a device.
pub(super) fn node(name: &str, spec: &DeviceDescription) -> NodeSpec {
    let mut labels: BTreeMap<String, String> =
        [("platform", "cisco-ios-xe"), PROVIDER_LABEL, ("virtual-kubelet.io/provider", PROVIDER)]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
    let place =
        [("topology.kubernetes.io/region", &spec.region), ("topology.kubernetes.io/zone", &spec.zone)];
    labels.extend(place.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value.clone()?))));
    labels.extend(spec.labels.clone());
    let provider = Taint {
        key: PROVIDER_TAINT.to_owned(),
        value: Some(PROVIDER.to_owned()),
        effect: "NoSchedule".to_owned(),
        time_added: None,
    };
    let taints = spec.taints.iter().map(|taint| Taint {
        key: taint.key.clone(),
        value: Some(taint.value.clone()).filter(|value| !value.is_empty()),
        effect: format!("{:?}", taint.effect),
        time_added: None,
    });
    NodeSpec {
        name: name.to_owned(),
        labels,
        annotations: BTreeMap::new(),
        taints: std::iter::once(provider).chain(taints).collect(),
        max_pods: spec.max_pods,
        host_ip: spec.address.trim_matches(['[', ']']).parse::<IpAddr>().ok(),
        host_name: None,
        address: spec.address.clone(),
        session: session(spec),
        retired: false,
    }
}

/// Returns a digest of all parts of the specification that affect the connection to a device: everything except the
/// labels, taints, region, zone, maximum number of pods and log level.
pub(super) fn session(spec: &DeviceDescription) -> u64 {
    let connection = DeviceDescription {
        labels: BTreeMap::new(),
        taints: Vec::new(),
        region: None,
        zone: None,
        max_pods: 0,
        log_level: None,
        ..spec.clone()
    };
    let mut digest = DefaultHasher::new();
    // The password is not written with the rest.
    serde_json::to_string(&connection).unwrap_or_default().hash(&mut digest);
    spec.password.as_ref().map(Password::expose).hash(&mut digest);
    digest.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(more: &serde_json::Value) -> DeviceDescription {
        let mut spec =
            json!({ "driver": "XE", "address": "192.0.2.1", "username": "admin", "password": "one" });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn a_node_has_the_labels_taints_and_place_of_its_device_and_keeps_others_away() {
        let described =
            spec(&json!({ "region": "north", "zone": "a", "labels": { "rack": "7" }, "maxPods": 4,
            "taints": [{ "key": "edge", "effect": "NoExecute" }] }));
        let node = node("r1", &described);
        let label = |key: &str| node.labels.get(key).map(String::as_str);
        assert_eq!(label("topology.kubernetes.io/region"), Some("north"));
        assert_eq!(
            (label("topology.kubernetes.io/zone"), label("rack"), node.max_pods),
            (Some("a"), Some("7"), 4)
        );
        let taints: Vec<_> = node.taints.iter().map(|taint| (&*taint.key, &*taint.effect)).collect();
        assert_eq!(taints, [(PROVIDER_TAINT, "NoSchedule"), ("edge", "NoExecute")]);
        assert_eq!(node.host_ip, Some("192.0.2.1".parse().unwrap()));
    }

    #[test]
    fn the_way_to_a_device_changes_with_what_it_depends_on_and_with_nothing_else() {
        let before = session(&spec(&json!({})));
        assert_eq!(before, session(&spec(&json!({}))));
        assert_ne!(before, session(&spec(&json!({ "password": "two" }))));
        for way in [
            json!({ "port": 1 }),
            json!({ "podCIDR": "10.0.0.0/24" }),
            json!({ "credentialSecretRef": { "name": "login" } }),
            json!({ "resourceLimits": { "maxCPU": "1" } }),
            json!({ "tls": { "enabled": false } }),
            json!({ "xe": {} }),
        ] {
            assert_ne!(before, session(&spec(&way)), "{way}");
        }
        let of_node = json!({ "labels": { "rack": "7" }, "taints": [{ "key": "edge", "effect": "NoExecute" }],
            "region": "north", "zone": "a", "maxPods": 4, "logLevel": "debug" });
        assert_eq!(before, session(&spec(&of_node)), "that is of its node alone");
    }
}
