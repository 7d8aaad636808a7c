//! The specification of a device, as its driver needs it.

mod password;
mod tls;

use std::collections::BTreeMap;

use ipnet::Ipv4Net;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use password::Password;
pub use tls::TlsSpec;

/// The specification of a device that hosts pods, as its driver needs it: the connection, the limits of containers, and the options that
/// only drivers of its kind know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceSpec {
    /// The name of the driver for this kind of device; if empty, the default driver applies.
    #[serde(default)]
    pub driver: String,
    /// The host name or IP address of the device's management API.
    pub address: String,
    /// The port of the device's management API. If absent, 443, or 80 without TLS.
    pub port: Option<u16>,
    /// The name of the account on the device.
    #[serde(default)]
    pub username: String,
    /// The password of the account. It is never written or logged.
    #[serde(skip_serializing)]
    pub password: Option<Password>,
    /// The TLS options of the connection to the device.
    #[serde(default)]
    pub tls: TlsSpec,
    /// The subnet from which pods get addresses if they do not use DHCP. Its first address is the gateway.
    #[serde(rename = "podCIDR")]
    pub pod_cidr: Option<Ipv4Net>,
    /// The default and the maximum resources of containers.
    #[serde(default)]
    pub resource_limits: ResourceLimits,
    /// Options of the driver, under the key `driverOptions`. The driver checks them. They are shown in logs: no secret may be among them.
    #[serde(default)]
    pub driver_options: Map<String, Value>,
    /// All other keys of the specification, such as sections for one kind of device. The driver of such devices parses and checks them; other
    /// drivers ignore them.
    #[serde(flatten)]
    pub sections: Map<String, Value>,
}

impl DeviceSpec {
    /// Returns the port of the device's management API: `port`, or the default of the protocol.
    pub fn management_port(&self) -> u16 {
        self.port.unwrap_or(if self.tls.enabled { 443 } else { 80 })
    }
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
    /// The maximum of any other resource, by name. A driver whose devices have no other resources ignores it with a warning, and rejects containers
    /// that request one.
    pub others: BTreeMap<String, String>,
}
