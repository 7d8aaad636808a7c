//! The interface by which pods on an IOS-XE device reach the network.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Options of devices of the kind `XE`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct XeSpec {
    /// The network of pods.
    pub networking: Networking,
}

/// The network of pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Networking {
    /// The interface; `VirtualPortGroup` 0 with DHCP if absent.
    pub interface: Option<InterfaceSpec>,
}

/// An interface: its type, and the section of that type and no other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InterfaceSpec {
    /// The type, which names the section that applies.
    #[serde(rename = "type")]
    pub kind: InterfaceType,
    /// A port group inside the device, which routes.
    pub virtual_port_group: Option<VirtualPortGroup>,
    /// An internal port of a switch, which bridges.
    pub app_gigabit_ethernet: Option<AppGigabitEthernet>,
    /// The management port.
    pub management: Option<ManagementSpec>,
}

/// The types of interfaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum InterfaceType {
    /// A port group inside the device, which routes.
    #[default]
    VirtualPortGroup,
    /// An internal port of a switch, which bridges.
    AppGigabitEthernet,
    /// The management port.
    Management,
}

/// A port group inside the device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct VirtualPortGroup {
    /// `true` if the pods use DHCP; otherwise they get addresses of `podCIDR`.
    #[serde(alias = "dhcpEnabled")]
    pub dhcp: bool,
    /// The number of the port group, `0` to `3`; `0` if absent.
    #[schemars(length(min = 1, max = 1))]
    pub interface: Option<String>,
    /// The number of the interface in the container.
    #[schemars(range(max = 3))]
    pub guest_interface: u8,
}

/// An internal port of a switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AppGigabitEthernet {
    /// The mode: one VLAN or many.
    pub mode: PortMode,
    /// `true` if the pods use DHCP. It applies to an access port without a VLAN; others have their own in `vlanIf`.
    #[serde(default)]
    pub dhcp: bool,
    /// The number of the interface in the container, where `vlanIf` does not tell.
    #[serde(default)]
    #[schemars(range(max = 63))]
    pub guest_interface: u8,
    /// The VLAN of the pods. A trunk needs one.
    pub vlan_if: Option<VlanInterface>,
}

/// The mode of a port: one VLAN or many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PortMode {
    /// One, without tags.
    #[default]
    Access,
    /// Many, with tags.
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
    /// `true` if the pods use DHCP; otherwise they get addresses of `podCIDR`.
    pub dhcp: bool,
    /// The number of the VLAN; 0 is none.
    #[schemars(range(max = 4094))]
    pub vlan: u16,
    /// The number of the interface in the container; that of the port if absent.
    #[schemars(range(max = 63))]
    pub guest_interface: Option<u8>,
    /// `true` if frames with other source addresses are forwarded.
    pub mac_forwarding_enabled: bool,
    /// `true` if multicast is forwarded.
    pub multicast_enabled: bool,
    /// `true` if the traffic of the port is mirrored to the pods.
    pub mirror_enabled: bool,
}

/// The management port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ManagementSpec {
    /// `true` if the pods use DHCP; otherwise they get addresses of `podCIDR`.
    pub dhcp: bool,
    /// The number of the interface in the container.
    #[schemars(range(max = 3))]
    pub guest_interface: u8,
}
