//! The VIF: a pod's interface in the external system, with all that a node needs to bind it.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::id::VifId;
use crate::network::{Network, SubnetAddresses};

/// A virtual interface. Its fields are those of the library `os_vif`, from which the machine that binds it reads them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Vif {
    /// The id of the port.
    pub id: VifId,
    /// The hardware address.
    pub address: MacAddress,
    /// `true` if packets pass.
    pub active: bool,
    /// The `os_vif` plug-in that binds it: `ovs`, `linux_bridge`, `noop` for nested ones.
    pub plugin: String,
    /// The class, which determines how it is bound.
    pub class: VifClass,
    /// The network.
    pub network: Network,
    /// The subnets of that network in which it has addresses: at most one per address family.
    pub subnets: Vec<SubnetAddresses>,
    /// `true` if the port's rules are enforced outside the pod.
    pub has_traffic_filtering: bool,
    /// `true` if the interface outlives its unbinding.
    pub preserve_on_delete: bool,
    /// The properties of the port that the switch needs.
    pub port_profile: Option<PortProfile>,
}

/// The class of a VIF, which determines how it is bound: the classes of `os_vif` and of Kuryr.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VifClass {
    /// `VIFOpenVSwitch`: a port of an Open vSwitch bridge.
    #[serde(rename = "open_vswitch")]
    OpenVSwitch {
        /// The interface on the node.
        vif_name: String,
        /// The bridge.
        bridge_name: String,
    },
    /// `VIFBridge`: a port of a Linux bridge.
    Bridge {
        /// The interface on the node.
        vif_name: String,
        /// The bridge.
        bridge_name: String,
    },
    /// `VIFVHostUser`: a socket that a user-space switch serves.
    #[serde(rename = "vhost_user")]
    VHostUser {
        /// The interface on the node.
        vif_name: String,
        /// The path of the socket.
        path: String,
        /// The end that creates the socket: `client` or `server`.
        mode: String,
    },
    /// `VIFVlanNested`: a VLAN of the node's own trunk port.
    VlanNested {
        /// The interface on the node.
        vif_name: String,
        /// The VLAN, 1 to 4094.
        vlan_id: u16,
    },
    /// `VIFMacvlanNested`: a macvlan interface on the node's own port.
    MacvlanNested {
        /// The interface on the node.
        vif_name: String,
    },
    /// `VIFDPDKNested`: a PCI device of the node that DPDK drives.
    DpdkNested {
        /// The interface on the node.
        vif_name: String,
        /// The address of the device on the PCI bus.
        pci_address: String,
        /// The driver of the device.
        dev_driver: String,
    },
    /// A class that this program does not know; it survives being read and written.
    Other {
        /// The class.
        name: String,
        /// Its version.
        version: String,
        /// The fields that not every VIF has.
        fields: Map<String, Value>,
    },
}

/// The properties of a port that the switch needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PortProfile {
    /// `VIFPortProfileOpenVSwitch`.
    #[serde(rename = "open_vswitch")]
    OpenVSwitch {
        /// The id by which Open vSwitch and Neutron agree on the port.
        interface_id: String,
    },
    /// A profile that this program does not know; it survives being read and written.
    Other {
        /// The class.
        name: String,
        /// Its version.
        version: String,
        /// The fields.
        fields: Map<String, Value>,
    },
}

impl Vif {
    /// The addresses of the VIF in all its subnets.
    pub fn ips(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.subnets.iter().flat_map(|subnet| subnet.ips.iter().copied())
    }
}

/// A hardware address (EUI-48). In JSON, its text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct MacAddress(pub [u8; 6]);

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let octets = self.0.map(|octet| format!("{octet:02x}"));
        f.write_str(&octets.join(":"))
    }
}

impl fmt::Debug for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text is not a hardware address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a hardware address such as fa:16:3e:00:00:01")]
pub struct ParseMacAddressError(String);

impl FromStr for MacAddress {
    type Err = ParseMacAddressError;

    fn from_str(text: &str) -> Result<Self, ParseMacAddressError> {
        // `from_str_radix` takes a sign, which no octet has.
        let is_octet =
            |digits: &str| digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let octet = |digits| u8::from_str_radix(digits, 16).ok().filter(|_| is_octet(digits));
        let octets = text.split(':').map(octet).collect::<Option<Vec<_>>>();
        let address = octets.and_then(|octets| octets.try_into().ok());
        address.map(Self).ok_or_else(|| ParseMacAddressError(text.to_owned()))
    }
}

impl From<MacAddress> for String {
    fn from(address: MacAddress) -> Self {
        address.to_string()
    }
}

impl TryFrom<String> for MacAddress {
    type Error = ParseMacAddressError;

    fn try_from(text: String) -> Result<Self, ParseMacAddressError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hardware_address_is_read_as_it_is_written() {
        let address: MacAddress = "fa:16:3e:00:0A:ff".parse().unwrap();
        assert_eq!(address.to_string(), "fa:16:3e:00:0a:ff");
    }

    #[test]
    fn what_is_no_hardware_address_is_refused() {
        for text in [
            "",
            "fa:16:3e:00:00",
            "fa:16:3e:00:00:01:02",
            "fa:16:3e:00:00:1",
            "fa:16:3e:00:00:+1",
            "zz:16:3e:00:00:01",
        ] {
            assert_eq!(text.parse::<MacAddress>(), Err(ParseMacAddressError(text.into())));
        }
    }
}
