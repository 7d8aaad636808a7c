//! The section `xe` of a device specification: the network interface of pods on an IOS-XE device.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use staffetta_driver::app_hosting::DeviceSpec;
use staffetta_driver::{DriverError, Reason};

/// Options of IOS-XE devices, whose driver is `XE`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct XeSpec {
    /// The network of the pods on the device.
    pub networking: Networking,
}

impl XeSpec {
    /// Parses the section of a device specification; `None` if it has none. An invalid section is refused with the path of the field.
    pub(crate) fn read(spec: &DeviceSpec) -> Result<Option<Self>, DriverError> {
        let Some(section) = spec.sections.get("xe") else { return Ok(None) };
        serde_path_to_error::deserialize(section.clone()).map(Some).map_err(|error| {
            let path = match error.path().to_string() {
                path if path == "." => "xe".to_owned(),
                path => format!("xe.{path}"),
            };
            DriverError::new(Reason::Refused, "read the section of a device")
                .detail(format!("{path}: {}", error.inner()))
        })
    }
}

/// The network of the pods on a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Networking {
    /// The interface of the pods; if absent, `VirtualPortGroup` 0 with DHCP.
    pub interface: Option<InterfaceSpec>,
}

/// The interface that connects pods to the network. Only the section of its type may be present, and it must be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InterfaceSpec {
    /// The type of the interface.
    #[serde(rename = "type")]
    pub kind: InterfaceType,
    /// The section of the type `VirtualPortGroup`.
    pub virtual_port_group: Option<VirtualPortGroup>,
    /// The section of the type `AppGigabitEthernet`.
    pub app_gigabit_ethernet: Option<AppGigabitEthernet>,
    /// The section of the type `Management`.
    pub management: Option<ManagementSpec>,
}

/// The type of the interface that connects pods to the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum InterfaceType {
    /// A virtual port group inside the device, which routes the traffic of pods.
    #[default]
    VirtualPortGroup,
    /// An internal port of a switch, which bridges the traffic of pods.
    AppGigabitEthernet,
    /// The management port of the device.
    Management,
}

/// The connection of pods to a virtual port group inside the device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct VirtualPortGroup {
    /// `true` if the pods use DHCP; otherwise they get addresses from `podCIDR`.
    #[serde(alias = "dhcpEnabled")]
    pub dhcp: bool,
    /// The number of the virtual port group, `0` to `3`; if absent, `0`.
    #[schemars(length(min = 1, max = 1))]
    pub interface: Option<String>,
    /// The number of the network interface in the container, 0 to 3.
    #[schemars(range(max = 3))]
    pub guest_interface: u8,
}

/// The connection of pods to an internal port of a switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AppGigabitEthernet {
    /// The mode of the port: access or trunk.
    pub mode: PortMode,
    /// `true` if the pods use DHCP. It applies to an access port without a VLAN, where it must be `true`. With a VLAN, the `dhcp`
    /// of `vlanIf` applies.
    #[serde(default)]
    pub dhcp: bool,
    /// The number of the network interface in the container: 0 to 63, or 0 to 3 without DHCP. The number in `vlanIf` takes
    /// precedence.
    #[serde(default)]
    #[schemars(range(max = 63))]
    pub guest_interface: u8,
    /// The VLAN of the pods. A trunk port requires one.
    pub vlan_if: Option<VlanInterface>,
}

/// The mode of a switch port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PortMode {
    /// An access port: it carries one VLAN, and its frames have no VLAN tag.
    #[default]
    Access,
    /// A trunk port: it carries several VLANs, and its frames have VLAN tags.
    Trunk,
}

/// The VLAN of the pods on an internal port of a switch.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an option of its own, and the names are those of the file"
)]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct VlanInterface {
    /// `true` if the pods use DHCP; otherwise they get addresses from `podCIDR`.
    pub dhcp: bool,
    /// The VLAN id, 1 to 4094; 0 for no VLAN.
    #[schemars(range(max = 4094))]
    pub vlan: u16,
    /// The number of the network interface in the container: 0 to 63, or 0 to 3 without DHCP. If absent, the number that the port
    /// specifies applies.
    #[schemars(range(max = 63))]
    pub guest_interface: Option<u8>,
    /// `true` if frames with other source MAC addresses than the pod's are forwarded (`mac-forward-enable`).
    pub mac_forwarding_enabled: bool,
    /// `true` if multicast traffic is forwarded (`mcast-enable`).
    pub multicast_enabled: bool,
    /// `true` if the traffic of the port is mirrored to the pods (`mirror-enable`).
    pub mirror_enabled: bool,
}

/// The connection of pods to the management port of the device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ManagementSpec {
    /// `true` if the pods use DHCP; otherwise they get addresses from `podCIDR`.
    pub dhcp: bool,
    /// The number of the network interface in the container: 0 to 3, or 0 and 1 without DHCP.
    #[schemars(range(max = 3))]
    pub guest_interface: u8,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn everything() -> Value {
        json!({
            "driver": "XE", "address": "192.0.2.1",
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
    fn every_key_of_the_existing_provider_is_read() {
        let spec: DeviceSpec = serde_json::from_value(everything()).unwrap();
        let interface = XeSpec::read(&spec).unwrap().unwrap().networking.interface.unwrap();
        let ethernet = interface.app_gigabit_ethernet.unwrap();
        assert_eq!((interface.kind, ethernet.mode), (InterfaceType::AppGigabitEthernet, PortMode::Trunk));
        assert_eq!(ethernet.vlan_if.unwrap().vlan, 100);
    }

    #[test]
    fn an_unknown_key_is_refused_at_every_depth() {
        for path in ["/xe", "/xe/networking", "/xe/networking/interface"] {
            let mut spec = everything();
            spec.pointer_mut(path).unwrap()["colour"] = json!("red");
            let refusal = XeSpec::read(&serde_json::from_value(spec).unwrap()).unwrap_err().to_string();
            let path = format!("{}.colour: unknown field `colour`", path[1..].replace('/', "."));
            assert!(refusal.contains(&path), "{path}: {refusal}");
        }
    }

    #[test]
    fn a_value_that_cannot_be_right_is_refused_by_path() {
        let mut spec = everything();
        spec.pointer_mut("/xe/networking/interface/appGigabitEthernet/vlanIf").unwrap()["vlan"] =
            json!("one");
        let refusal = XeSpec::read(&serde_json::from_value(spec).unwrap()).unwrap_err();
        assert_eq!(refusal.reason(), Reason::Refused);
        let path = "xe.networking.interface.appGigabitEthernet.vlanIf.vlan: invalid type";
        assert!(refusal.to_string().contains(path), "{refusal}");
    }

    #[test]
    fn what_is_written_is_read_again() {
        let section: XeSpec = serde_json::from_value(everything()["xe"].clone()).unwrap();
        let mut spec = everything();
        spec["xe"] = json!(section);
        let spec: DeviceSpec = serde_json::from_value(spec).unwrap();
        assert_eq!(XeSpec::read(&spec).unwrap(), Some(section));
    }
}
