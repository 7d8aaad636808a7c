//! The specification of a device by its administrator: in a file, or in a `CiscoDevice` object.

mod interface;
mod password;
mod tls;

use std::collections::BTreeMap;

use ipnet::Ipv4Net;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use interface::{
    AppGigabitEthernet, InterfaceSpec, InterfaceType, ManagementSpec, Networking, PortMode, VirtualPortGroup,
    VlanInterface, XeSpec,
};
pub use password::Password;
pub use tls::TlsSpec;

/// The default maximum number of pods of a device.
const MAX_PODS: u32 = 16;

/// The specification of a device that hosts pods. The keys are those of the `device:` file of Cisco's Virtual Kubelet provider,
/// with additions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeviceSpec {
    /// The name of the driver for this kind of device, such as `XE` or `FAKE`. If absent or empty, the option
    /// `kubernetes.app_hosting_driver` applies.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub driver: String,
    /// The host name or IP address of the device's management API.
    #[schemars(length(min = 1))]
    pub address: String,
    /// The port of the device's management API. If absent, 443, or 80 without TLS.
    #[schemars(range(min = 1))]
    pub port: Option<u16>,
    /// The name of the account on the device.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub username: String,
    /// The password of the account. It is never written or logged.
    #[serde(skip_serializing)]
    pub password: Option<Password>,
    /// The Secret with the keys `username` and `password`, which replace those in this specification.
    pub credential_secret_ref: Option<CredentialSecretRef>,
    /// The TLS options of the connection to the device.
    #[serde(default)]
    pub tls: TlsSpec,
    /// The subnet from which pods get addresses if they do not use DHCP. Its first address is the gateway.
    #[serde(rename = "podCIDR")]
    pub pod_cidr: Option<Ipv4Net>,
    /// Additional labels of the device's node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Additional taints of the device's node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<TaintSpec>,
    /// The region of the device, for the node label `topology.kubernetes.io/region`.
    pub region: Option<String>,
    /// The zone of the device, for the node label `topology.kubernetes.io/zone`.
    pub zone: Option<String>,
    /// The maximum number of pods on the device, 1 or more; 16 if absent.
    #[serde(default = "max_pods")]
    #[schemars(range(min = 1))]
    pub max_pods: u32,
    /// The log level of the device's own process in Cisco's provider. It is accepted, but ignored with a warning: devices have no
    /// process and no log of their own here.
    pub log_level: Option<LogLevel>,
    /// The default and the maximum resources of containers.
    #[serde(default)]
    pub resource_limits: ResourceLimits,
    /// Options of IOS-XE devices, whose driver is `XE`.
    pub xe: Option<XeSpec>,
    /// Options of a driver for another kind of device, which checks them. They are shown in logs: no secret may be among them.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub driver_options: Map<String, Value>,
}

impl DeviceSpec {
    /// Returns the port of the device's management API: `port`, or the default of the protocol.
    pub fn management_port(&self) -> u16 {
        self.port.unwrap_or(if self.tls.enabled { 443 } else { 80 })
    }
}

impl Default for DeviceSpec {
    fn default() -> Self {
        Self {
            driver: String::new(),
            address: String::new(),
            port: None,
            username: String::new(),
            password: None,
            credential_secret_ref: None,
            tls: TlsSpec::default(),
            pod_cidr: None,
            labels: BTreeMap::new(),
            taints: Vec::new(),
            region: None,
            zone: None,
            max_pods: MAX_PODS,
            log_level: None,
            resource_limits: ResourceLimits::default(),
            xe: None,
            driver_options: Map::new(),
        }
    }
}

fn max_pods() -> u32 {
    MAX_PODS
}

/// A reference to a Secret in the namespace of the controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CredentialSecretRef {
    /// The name of the Secret with the credentials of the device, in the namespace of the controller.
    #[schemars(length(min = 1))]
    pub name: String,
}

/// A taint of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaintSpec {
    /// The key.
    #[schemars(length(min = 1))]
    pub key: String,
    /// The value.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// The effect on pods that do not tolerate it.
    pub effect: TaintEffect,
}

/// The effect of a taint on pods that do not tolerate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TaintEffect {
    /// Pods that do not tolerate the taint are not scheduled on the node.
    NoSchedule,
    /// Pods that do not tolerate the taint are scheduled on the node only if no other node is suitable.
    PreferNoSchedule,
    /// Pods that do not tolerate the taint are not scheduled on the node, and running ones are evicted.
    NoExecute,
}

/// A log level of Cisco's provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// All messages, also those for debugging.
    Debug,
    /// Messages about normal operation.
    Info,
    /// Warnings.
    #[serde(alias = "warning")]
    Warn,
    /// Errors.
    Error,
}

/// The default and the maximum resources of each container of a pod, as quantities in the form of Kubernetes. What is absent has the
/// default of the driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ResourceLimits {
    /// The CPU of a container that neither requests nor limits it.
    #[serde(rename = "defaultCPU")]
    pub default_cpu: Option<String>,
    /// The memory of a container that neither requests nor limits it.
    pub default_memory: Option<String>,
    /// The storage of a container that neither requests nor limits it.
    pub default_storage: Option<String>,
    /// The maximum CPU of a container.
    #[serde(rename = "maxCPU")]
    pub max_cpu: Option<String>,
    /// The maximum memory of a container.
    pub max_memory: Option<String>,
    /// The maximum storage of a container.
    pub max_storage: Option<String>,
    /// The maximum of any other resource, by name, in Cisco's provider. It is accepted, but ignored with a warning: devices have
    /// no other resources, and a container that requests one is rejected.
    pub others: BTreeMap<String, String>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn everything() -> Value {
        json!({
            "driver": "XE", "address": "192.0.2.1", "port": 8443, "username": "admin", "password": "hunter2",
            "credentialSecretRef": { "name": "device" },
            "tls": {
                "enabled": true, "insecureSkipVerify": false, "certFile": "/c.pem", "keyFile": "/k.pem",
                "caFile": "/ca.pem", "certificateSha256": "00",
            },
            "podCIDR": "10.0.0.0/24", "labels": { "rack": "7" },
            "taints": [{ "key": "edge", "value": "yes", "effect": "NoSchedule" }],
            "region": "north", "zone": "a", "maxPods": 4, "logLevel": "warning",
            "resourceLimits": {
                "defaultCPU": "500m", "defaultMemory": "256Mi", "defaultStorage": "1Gi",
                "maxCPU": "2", "maxMemory": "2Gi", "maxStorage": "4Gi", "others": { "usb": "1" },
            },
            "xe": { "networking": { "interface": {
                "type": "AppGigabitEthernet",
                "appGigabitEthernet": {
                    "mode": "trunk", "dhcp": false, "guestInterface": 1,
                    "vlanIf": {
                        "dhcp": true, "vlan": 100, "guestInterface": 2, "macForwardingEnabled": true,
                        "multicastEnabled": true, "mirrorEnabled": true,
                    },
                },
            } } },
        })
    }

    #[test]
    fn the_connection_to_a_device_uses_tls_unless_that_is_switched_off() {
        for (tls, enabled, port) in [
            (None, true, 443),
            (Some(json!({})), true, 443),
            (Some(json!({ "certificateSha256": "00" })), true, 443),
            (Some(json!({ "enabled": false })), false, 80),
        ] {
            let mut spec = json!({ "address": "r1" });
            spec.as_object_mut().unwrap().extend(tls.map(|tls| ("tls".to_owned(), tls)));
            let spec: DeviceSpec = serde_json::from_value(spec).unwrap();
            assert_eq!((spec.tls.enabled, spec.management_port()), (enabled, port));
        }
    }

    #[test]
    fn every_key_of_the_existing_provider_is_read() {
        let spec: DeviceSpec = serde_json::from_value(everything()).unwrap();
        assert_eq!((spec.management_port(), spec.max_pods, spec.log_level), (8443, 4, Some(LogLevel::Warn)));
        let interface = spec.xe.unwrap().networking.interface.unwrap();
        let ethernet = interface.app_gigabit_ethernet.unwrap();
        assert_eq!((interface.kind, ethernet.mode), (InterfaceType::AppGigabitEthernet, PortMode::Trunk));
        assert_eq!(ethernet.vlan_if.unwrap().vlan, 100);
    }

    #[test]
    fn a_description_of_two_words_is_enough() {
        let spec: DeviceSpec = serde_json::from_value(json!({ "driver": "FAKE", "address": "r1" })).unwrap();
        let expected = DeviceSpec { driver: "FAKE".into(), address: "r1".into(), ..DeviceSpec::default() };
        assert_eq!(spec, expected);
        assert_eq!((spec.management_port(), spec.max_pods), (443, 16));
        assert_eq!(DeviceSpec { tls: TlsSpec::off(), ..spec }.management_port(), 80);
    }

    #[test]
    fn the_options_of_an_outside_driver_are_kept_as_they_are() {
        let options = json!({ "slot": 3, "ports": ["a", "b"] });
        let spec = json!({ "driver": "ACME", "address": "r1", "driverOptions": options });
        let spec: DeviceSpec = serde_json::from_value(spec).unwrap();
        assert_eq!(serde_json::json!(spec.driver_options), options);
        assert_eq!(serde_json::to_value(&spec).unwrap()["driverOptions"], options);
    }

    #[test]
    fn an_unknown_key_is_refused_at_every_depth() {
        for path in
            ["", "/tls", "/taints/0", "/resourceLimits", "/xe", "/xe/networking", "/xe/networking/interface"]
        {
            let mut spec = everything();
            spec.pointer_mut(path).unwrap()["colour"] = json!("red");
            let error = serde_json::from_value::<DeviceSpec>(spec).unwrap_err();
            assert!(error.to_string().contains("unknown field `colour`"), "{path}: {error}");
        }
    }

    #[test]
    fn a_password_is_neither_shown_nor_written() {
        let spec: DeviceSpec = serde_json::from_value(everything()).unwrap();
        assert!(!format!("{spec:?}").contains("hunter2"));
        assert!(!serde_json::to_string(&spec).unwrap().contains("hunter2"));
        let other = DeviceSpec { password: Some(Password::new("other")), ..spec.clone() };
        assert_ne!(spec, other);
    }

    #[test]
    fn what_is_written_is_read_again() {
        let spec: DeviceSpec = serde_json::from_value(everything()).unwrap();
        let written = serde_json::to_value(&spec).unwrap();
        let read: DeviceSpec = serde_json::from_value(written).unwrap();
        assert_eq!(read, DeviceSpec { password: None, ..spec });
    }
}
