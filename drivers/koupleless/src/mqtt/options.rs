//! The options of the tunnel over MQTT.

use std::num::{NonZeroU16, NonZeroU64};
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use staffetta_driver::app_hosting::Password;

use crate::clock::SEND_LIMIT;

/// Options of the tunnel over MQTT.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MqttTunnelOptions {
    /// The host name or address of the broker.
    pub broker: String,
    /// The TCP port of the broker: 8883, or 1883 without TLS, unless set.
    #[schemars(example = 8883)]
    pub port: Option<NonZeroU16>,
    /// The version of MQTT.
    pub version: MqttVersion,
    /// The user name; empty to log in without one.
    pub username: String,
    /// The password of the user, better in the environment as `STAFFETTA_VNODE_MQTT__PASSWORD`.
    #[schemars(length(min = 1), example = &"secret", extend("x-secret" = true))]
    #[serde(skip_serializing)]
    pub password: Option<Password>,
    /// The prefix of the client id, which continues with `@@@` and the id of this controller.
    pub client_prefix: String,
    /// Use TLS, with which the broker is always verified. Without it, the password and all commands are sent in clear text.
    pub tls: bool,
    /// A PEM file with the CA certificates that verify the broker. Without it, those of the operating system.
    #[schemars(length(min = 1), example = "/etc/staffetta/broker-ca.pem")]
    pub ca_file: Option<PathBuf>,
    /// A PEM file with the certificate of this client; requires `key_file`.
    #[schemars(length(min = 1))]
    pub cert_file: Option<PathBuf>,
    /// A PEM file with the key of this client; requires `cert_file`.
    #[schemars(length(min = 1))]
    pub key_file: Option<PathBuf>,
    /// The time without a message after which the connection is checked, in seconds; at most half of `vnode.lease_duration_s`. The
    /// broker closes the connection of a suspended process after one and a half times as long.
    pub keep_alive_s: NonZeroU16,
    /// The time limit of connecting and logging in, in milliseconds.
    pub connect_timeout_ms: NonZeroU64,
    /// The maximum age of a list of modules, in milliseconds; an older one is dropped. It includes the difference between the clocks of
    /// base and controller.
    pub max_report_age_ms: NonZeroU64,
    /// The time limit of loading or unloading a module, in milliseconds.
    pub operation_timeout_ms: NonZeroU64,
    /// The time over which the queries of all bases after a reconnect are spread, in milliseconds. Fewer than ten bases a second
    /// are not delayed further.
    pub resync_ms: NonZeroU64,
    /// The time within which a change of a module is sent or given up. The controller derives it from `vnode.lease_duration_s`: it must be
    /// shorter than the time between the end of a replica's right to act for a node and the moment when another replica may take the node.
    #[serde(skip)]
    pub send_limit: Duration,
}

impl Default for MqttTunnelOptions {
    fn default() -> Self {
        let count = |number| NonZeroU64::new(number).expect("the defaults are not zero");
        Self {
            broker: "localhost".to_owned(),
            port: None,
            version: MqttVersion::V3,
            username: String::new(),
            password: None,
            client_prefix: "koupleless".to_owned(),
            tls: true,
            ca_file: None,
            cert_file: None,
            key_file: None,
            keep_alive_s: NonZeroU16::new(15).expect("the defaults are not zero"),
            connect_timeout_ms: count(10_000),
            max_report_age_ms: count(10_000),
            operation_timeout_ms: count(300_000),
            resync_ms: count(10_000),
            send_limit: SEND_LIMIT,
        }
    }
}

/// A version of MQTT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MqttVersion {
    /// MQTT 3.1.1, which every version of Arklet speaks.
    #[serde(rename = "3.1.1")]
    V3,
    /// MQTT 5: the broker drops commands that nobody received in time, and reports that are too large.
    #[serde(rename = "5")]
    V5,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tls_is_on_unless_it_is_switched_off_and_a_password_is_never_shown() {
        let read = |options| serde_json::from_value::<MqttTunnelOptions>(options);
        let options = read(json!({ "version": "5", "password": "hunter2" })).unwrap();
        assert!(options.tls && options.version == MqttVersion::V5);
        assert!(!format!("{options:?}").contains("hunter2"));
        for wrong in [json!({ "version": "4" }), json!({ "port": 0 }), json!({ "insecure": true })] {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
