//! The description of a device by its administrator: in the configuration, in a file, or in a `CiscoDevice` object.

use std::collections::BTreeMap;

use ipnet::Ipv4Net;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use staffetta_driver::app_hosting::{DeviceSpec, Password, ResourceLimits, TlsSpec};

/// The default maximum number of pods of a device.
const MAX_PODS: u32 = 16;

/// The description of a device that hosts pods. The keys are those of the `device:` file of Cisco's Virtual Kubelet provider,
/// with additions. `S` is the type of the section that only one kind of device has. By default, the section is not parsed: the driver of
/// the device does that. Programs that know the driver may choose its type, to find mistakes in the section with those in the rest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeviceDescription<S = Map<String, Value>> {
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
    pub xe: Option<S>,
    /// Options of a driver for another kind of device, which checks them. They are shown in logs: no secret may be among them.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub driver_options: Map<String, Value>,
}

impl DeviceDescription {
    /// Returns the part of the description that the driver of the device needs.
    pub fn spec(&self) -> DeviceSpec {
        let xe = self.xe.clone().map(|xe| ("xe".to_owned(), xe.into()));
        let log_level = self.log_level.map(|level| ("logLevel".to_owned(), json!(level)));
        DeviceSpec {
            driver: self.driver.clone(),
            address: self.address.clone(),
            port: self.port,
            username: self.username.clone(),
            password: self.password.clone(),
            tls: self.tls.clone(),
            pod_cidr: self.pod_cidr,
            resource_limits: self.resource_limits.clone(),
            driver_options: self.driver_options.clone(),
            sections: xe.into_iter().chain(log_level).collect(),
        }
    }
}

impl Default for DeviceDescription {
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

#[cfg(test)]
mod tests {
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
            "xe": { "slot": { "number": 1 } },
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
            let spec: DeviceDescription = serde_json::from_value(spec).unwrap();
            assert_eq!((spec.tls.enabled, spec.spec().management_port()), (enabled, port));
        }
    }

    #[test]
    fn every_key_of_the_existing_provider_is_read() {
        let spec: DeviceDescription = serde_json::from_value(everything()).unwrap();
        assert_eq!(
            (spec.spec().management_port(), spec.max_pods, spec.log_level),
            (8443, 4, Some(LogLevel::Warn))
        );
        assert_eq!(spec.xe.unwrap()["slot"]["number"], 1);
    }

    #[test]
    fn a_description_of_two_words_is_enough() {
        let spec: DeviceDescription =
            serde_json::from_value(json!({ "driver": "FAKE", "address": "r1" })).unwrap();
        let expected =
            DeviceDescription { driver: "FAKE".into(), address: "r1".into(), ..DeviceDescription::default() };
        assert_eq!(spec, expected);
        assert_eq!((spec.spec().management_port(), spec.max_pods), (443, 16));
        assert_eq!(DeviceDescription { tls: TlsSpec::off(), ..spec }.spec().management_port(), 80);
    }

    #[test]
    fn the_options_of_an_outside_driver_are_kept_as_they_are() {
        let options = json!({ "slot": 3, "ports": ["a", "b"] });
        let spec = json!({ "driver": "ACME", "address": "r1", "driverOptions": options });
        let spec: DeviceDescription = serde_json::from_value(spec).unwrap();
        assert_eq!(json!(spec.driver_options), options);
        assert_eq!(serde_json::to_value(&spec).unwrap()["driverOptions"], options);
    }

    #[test]
    fn an_unknown_key_is_refused_at_every_depth() {
        for path in ["", "/tls", "/taints/0", "/resourceLimits"] {
            let mut spec = everything();
            spec.pointer_mut(path).unwrap()["colour"] = json!("red");
            let error = serde_json::from_value::<DeviceDescription>(spec).unwrap_err();
            assert!(error.to_string().contains("unknown field `colour`"), "{path}: {error}");
        }
    }

    #[test]
    fn a_password_is_neither_shown_nor_written() {
        let spec: DeviceDescription = serde_json::from_value(everything()).unwrap();
        assert!(!format!("{spec:?}").contains("hunter2"));
        assert!(!serde_json::to_string(&spec).unwrap().contains("hunter2"));
        let other = DeviceDescription { password: Some(Password::new("other")), ..spec.clone() };
        assert_ne!(spec, other);
    }

    #[test]
    fn what_is_written_is_read_again() {
        let spec: DeviceDescription = serde_json::from_value(everything()).unwrap();
        let written = serde_json::to_value(&spec).unwrap();
        let read: DeviceDescription = serde_json::from_value(written).unwrap();
        assert_eq!(read, DeviceDescription { password: None, ..spec });
    }
}
