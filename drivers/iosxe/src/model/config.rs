//! The YANG module `Cisco-IOS-XE-app-hosting-cfg`: the configuration of applications.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The YANG container `app-hosting-cfg-data`: the configuration of app hosting.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ConfigData {
    /// The YANG container `apps`: the configured applications.
    pub(crate) apps: Apps,
}

/// The list of configured applications, in its YANG container `apps`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Apps {
    /// The configured applications, of this cluster and of others.
    pub(crate) app: Vec<ConfiguredApp>,
}

/// A configured application, of this cluster or of another user. If a part cannot be decoded, the other parts are
/// still decoded.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "Value")]
pub(crate) struct ConfiguredApp {
    /// The name of the application, which is the key of the list `app`.
    pub(crate) name: String,
    /// The options with which the container is started, including the ownership labels.
    pub(crate) run_options: RunOptions,
    /// The first configured IP address; `None` if the application gets one by DHCP.
    pub(crate) address: Option<IpAddr>,
    /// All IP addresses in the configuration of the application. No other application may get one of them.
    pub(crate) mentioned: Vec<IpAddr>,
}

impl From<Value> for ConfiguredApp {
    fn from(app: Value) -> Self {
        let mut mentioned = Vec::new();
        addresses_in(&app, &mut mentioned);
        let network = &app["application-network-resource"];
        let rules = app["appintf-vlan-rules"]["appintf-vlan-rule"].as_array();
        let own = [&network["virtualportgroup-guest-ip-address-1"], &network["management-guest-ip-address"]];
        let mut own = own.into_iter().chain(rules.into_iter().flatten().map(|rule| &rule["guest-ip"]));
        Self {
            name: app["application-name"].as_str().unwrap_or_default().to_owned(),
            run_options: RunOptions::deserialize(&app["run-optss"]).unwrap_or_default(),
            address: own.find_map(|address| parsed(address.as_str()?)),
            mentioned,
        }
    }
}

/// Appends all IP addresses in `value`, a part of a configuration, to `found`. The YANG module has about a dozen leaves for addresses.
fn addresses_in(value: &Value, found: &mut Vec<IpAddr>) {
    match value {
        Value::String(text) => found.extend(parsed(text)),
        Value::Array(list) => list.iter().for_each(|value| addresses_in(value, found)),
        Value::Object(members) => members.values().for_each(|value| addresses_in(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Parses an IP address, without its zone (RFC 6991, `inet:ip-address`); `None` if the text is not an IP address.
fn parsed(text: &str) -> Option<IpAddr> {
    text.split('%').next()?.parse().ok()
}

/// Returns the body of a request that writes the configuration `app` of one application, as an entry of the YANG list `app`.
pub(crate) fn body(app: &Value) -> Value {
    json!({ "Cisco-IOS-XE-app-hosting-cfg:app": [app] })
}

/// The YANG container `application-resource-profile`: the resources that an application reserves.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct ResourceProfile {
    /// The name of the profile: `custom` for explicit amounts.
    pub(crate) profile_name: String,
    /// The reserved CPU units, each a thousandth of a CPU.
    pub(crate) cpu_units: u16,
    /// The reserved memory, in MB of 2^20 bytes.
    pub(crate) memory_capacity_mb: u16,
    /// The reserved storage, in MB of 2^20 bytes.
    pub(crate) disk_size_mb: u16,
    /// The number of virtual CPUs that the container sees.
    pub(crate) vcpu: u16,
}

/// The YANG container `run-optss` (spelled so in the YANG module): the options with which the container of an application is started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct RunOptions {
    /// The options for the container, in lines.
    pub(crate) run_opts: Vec<Line>,
}

/// A line of options for the container: at most 235 characters, with an index from 1 to 30.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct Line {
    /// The index of the line, from 1.
    pub(crate) line_index: u16,
    /// The options, separated by blanks.
    pub(crate) line_run_opts: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_others_configured_is_read_as_far_as_it_can_be() {
        let network = |field: &str, text: Value| json!({ "application-network-resource": { field: text } });
        let app = |name: &str, mut rest: Value| {
            rest["application-name"] = name.into();
            rest
        };
        let data = json!({ "apps": { "app": [
            app("zone", network("management-guest-ip-address", json!("fe80::1%2"))),
            app("word", network("management-guest-ip-address", json!("somewhere"))),
            app("number", json!({ "application-resource-profile": { "cpu-units": 70_000 } })),
            app("list", json!({ "run-optss": [] })),
            app("plain", network("virtualportgroup-guest-ip-address-1", json!("10.0.0.9"))),
        ] } });
        let read: ConfigData = serde_json::from_value(data).unwrap();
        let found = |app: &ConfiguredApp| (app.name.clone(), app.address);
        let address = |text: &str| text.parse::<IpAddr>().ok();
        let expected = [
            ("zone".to_owned(), address("fe80::1")),
            ("word".to_owned(), None),
            ("number".to_owned(), None),
            ("list".to_owned(), None),
            ("plain".to_owned(), address("10.0.0.9")),
        ];
        assert_eq!(read.apps.app.iter().map(found).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn every_address_that_is_configured_for_anybody_is_known_wherever_the_module_has_a_place_for_it() {
        let unreadable = json!({ "cpu-units": 70_000 });
        let data = json!({ "apps": { "app": [{
            "application-name": "guest", "application-resource-profile": unreadable,
            "application-network-resource": {
                "virtualportgroup-guest-ip-address-1": "10.0.0.1", "virtualportgroup-guest-ip-address-4": "10.0.0.4",
            },
            "appintf-vlan-rules": { "appintf-vlan-rule": [{ "vlan-id": 1, "guest-ip": "10.0.0.5%eth0" }] },
            "appintf-mgmt-vlans": { "appintf-mgmt-vlan": [{ "mgmt-vlan-param": { "guest-ip": "10.0.0.6" } }] },
            "run-optss": { "run-opts": [{ "line-index": 1, "line-run-opts": "-e PEER=10.0.0.7" }] },
        }] } });
        let read: ConfigData = serde_json::from_value(data).unwrap();
        let mut mentioned: Vec<_> = read.apps.app[0].mentioned.iter().map(ToString::to_string).collect();
        mentioned.sort();
        assert_eq!(mentioned, ["10.0.0.1", "10.0.0.4", "10.0.0.5", "10.0.0.6"]);
    }
}
