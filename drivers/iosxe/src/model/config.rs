//! The module `Cisco-IOS-XE-app-hosting-cfg`: what applications are configured to be. The misspelt names are the
//! module's own.

use std::net::IpAddr;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::list::each;

/// The container `app-hosting-cfg-data`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ConfigData {
    pub(crate) apps: Apps,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Apps {
    #[serde(deserialize_with = "apps")]
    pub(crate) app: Vec<App>,
}

/// The applications one by one: of one that cannot be read, somebody else's, there remains that it is there, and which addresses
/// it has.
fn apps<'de, D: Deserializer<'de>>(list: D) -> Result<Vec<App>, D::Error> {
    each(list, |entry, read| {
        let named = || App {
            application_name: entry["application-name"].as_str().unwrap_or_default().to_owned(),
            ..App::default()
        };
        let mut app = read.unwrap_or_else(named);
        addresses_in(entry, &mut app.mentioned);
        Some(app)
    })
}

/// All addresses in a part of the configuration, whatever they are for: the module has a dozen places for them.
fn addresses_in(value: &Value, found: &mut Vec<IpAddr>) {
    match value {
        Value::String(text) => found.extend(parsed(text)),
        Value::Array(list) => list.iter().for_each(|value| addresses_in(value, found)),
        Value::Object(members) => members.values().for_each(|value| addresses_in(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// An address. One that carries a zone (RFC 6991, `inet:ip-address`) is read without it, and what is none is none.
fn address<'de, D: Deserializer<'de>>(text: D) -> Result<Option<IpAddr>, D::Error> {
    let text = Option::<String>::deserialize(text)?;
    Ok(text.as_deref().and_then(parsed))
}

fn parsed(text: &str) -> Option<IpAddr> {
    text.split('%').next()?.parse().ok()
}

/// An application.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct App {
    pub(crate) application_name: String,
    pub(crate) application_network_resource: Network,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) application_resource_profile: Option<ResourceProfile>,
    #[serde(skip_serializing_if = "VlanRules::is_empty")]
    pub(crate) appintf_vlan_rules: VlanRules,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) appintf_mgmt: Option<Management>,
    pub(crate) run_optss: RunOptions,
    pub(crate) start: bool,
    /// Every address that its configuration names: nobody else is to get any of them.
    #[serde(skip)]
    pub(crate) mentioned: Vec<IpAddr>,
}

impl App {
    /// The body of the request that adds it to the list.
    pub(crate) fn body(&self) -> Value {
        serde_json::json!({ "Cisco-IOS-XE-app-hosting-cfg:app": [self] })
    }

    /// The addresses that it is given, none where it asks a DHCP server.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        let network = &self.application_network_resource;
        let own = [network.virtualportgroup_guest_ip_address_1, network.management_guest_ip_address];
        let of_vlans = self.appintf_vlan_rules.appintf_vlan_rule.iter().filter_map(|rule| rule.guest_ip);
        own.into_iter().flatten().chain(of_vlans)
    }
}

/// The container `application-network-resource`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct Network {
    #[serde(rename = "vnic-gateway-0", skip_serializing_if = "Option::is_none")]
    pub(crate) vnic_gateway_0: Option<String>,
    #[serde(rename = "virtualportgroup-guest-interface-name-1", skip_serializing_if = "Option::is_none")]
    pub(crate) virtualportgroup_guest_interface_name_1: Option<String>,
    #[serde(
        rename = "virtualportgroup-guest-ip-address-1",
        skip_serializing_if = "Option::is_none",
        deserialize_with = "address"
    )]
    pub(crate) virtualportgroup_guest_ip_address_1: Option<IpAddr>,
    #[serde(
        rename = "virtualportgroup-guest-ip-netmask-1",
        skip_serializing_if = "Option::is_none",
        deserialize_with = "address"
    )]
    pub(crate) virtualportgroup_guest_ip_netmask_1: Option<IpAddr>,
    #[serde(
        rename = "virtualportgroup-application-default-gateway-1",
        skip_serializing_if = "Option::is_none",
        deserialize_with = "address"
    )]
    pub(crate) virtualportgroup_application_default_gateway_1: Option<IpAddr>,
    #[serde(
        rename = "virtualportgroup-guest-interface-default-gateway-1",
        skip_serializing_if = "Option::is_none"
    )]
    pub(crate) virtualportgroup_guest_interface_default_gateway_1: Option<u8>,
    #[serde(rename = "nameserver-0", skip_serializing_if = "Option::is_none", deserialize_with = "address")]
    pub(crate) nameserver_0: Option<IpAddr>,
    #[serde(rename = "nameserver-1", skip_serializing_if = "Option::is_none", deserialize_with = "address")]
    pub(crate) nameserver_1: Option<IpAddr>,
    #[serde(rename = "nameserver2", skip_serializing_if = "Option::is_none", deserialize_with = "address")]
    pub(crate) nameserver_2: Option<IpAddr>,
    #[serde(rename = "nameserver-3", skip_serializing_if = "Option::is_none", deserialize_with = "address")]
    pub(crate) nameserver_3: Option<IpAddr>,
    #[serde(rename = "nameseerver4", skip_serializing_if = "Option::is_none", deserialize_with = "address")]
    pub(crate) nameserver_4: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) management_interface_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "address")]
    pub(crate) management_guest_ip_address: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "address")]
    pub(crate) management_guest_ip_netmask: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "address")]
    pub(crate) management_application_gateway: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) management_guest_interface_default_gateway: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) appintf_vlan_mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) appintf_access_interface_number: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mac_forward_enable: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mcast_enable: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mirror_enable: Option<bool>,
}

/// The container `application-resource-profile`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct ResourceProfile {
    pub(crate) profile_name: String,
    pub(crate) cpu_units: u16,
    pub(crate) memory_capacity_mb: u16,
    pub(crate) disk_size_mb: u16,
    pub(crate) vcpu: u16,
}

/// The container `appintf-vlan-rules`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct VlanRules {
    pub(crate) appintf_vlan_rule: Vec<VlanRule>,
}

impl VlanRules {
    fn is_empty(&self) -> bool {
        self.appintf_vlan_rule.is_empty()
    }
}

/// How a VLAN reaches an application.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct VlanRule {
    pub(crate) vlan_id: u16,
    pub(crate) guest_interface: u8,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "address")]
    pub(crate) guest_ip: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "address")]
    pub(crate) guest_ipnetmask: Option<IpAddr>,
    pub(crate) mac_forward_enable: bool,
    pub(crate) mcast_enable: bool,
    pub(crate) mirror_enable: bool,
}

/// The container `appintf-mgmt`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct Management {
    pub(crate) access_if_num: u8,
}

/// The container `run-optss`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct RunOptions {
    pub(crate) run_opts: Vec<Line>,
}

/// A line of options for the container: at most 235 characters, numbered 1 to 30.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct Line {
    pub(crate) line_index: u16,
    pub(crate) line_run_opts: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_somebody_else_configured_is_read_as_far_as_it_can_be() {
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
        let found = |app: &App| (app.application_name.clone(), app.addresses().next());
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
