//! The VIF: the network interface of a pod in the external system, with all properties that a node needs to bind it, and its networks.

mod network;

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::id::VifId;

pub use network::{Network, Route, Subnet, SubnetAddresses};

/// A virtual interface: a port in the cloud, as a node must know it. The fields are those of the VIF objects of the Python
/// library `os_vif`. The CNI daemon of the node, Kuryr's or `staffetta cni-daemon`, reads them from an annotation of the pod, and binds
/// the interface to the pod.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Vif {
    /// The id of the VIF, which is that of its port in the cloud.
    pub id: VifId,
    /// The MAC address of the interface.
    pub address: MacAddress,
    /// `true` if the port is active: its traffic is forwarded.
    pub active: bool,
    /// The name of the `os_vif` plug-in that binds the interface: `ovs`, `linux_bridge`, or `noop` for the nested classes.
    pub plugin: String,
    /// The class, with the properties that only VIFs of this class have.
    pub class: VifClass,
    /// The network of the port.
    pub network: Network,
    /// The subnets of `network` in which the interface has addresses: at most one per address family.
    pub subnets: Vec<SubnetAddresses>,
    /// `true` if the security groups of the port are enforced outside the pod.
    pub has_traffic_filtering: bool,
    /// `true` if the interface on the node is kept when it is unbound.
    pub preserve_on_delete: bool,
    /// The properties of the port that the virtual switch of the node needs; `None` if the class needs none.
    pub port_profile: Option<PortProfile>,
}

/// The class of a VIF, which determines the way in which a node binds it. The classes and their names are those of `os_vif` and,
/// for nested pods, of Kuryr.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VifClass {
    /// `VIFOpenVSwitch`: a port of an Open vSwitch bridge.
    #[serde(rename = "open_vswitch")]
    OpenVSwitch {
        /// The name of the interface on the node.
        vif_name: String,
        /// The name of the bridge.
        bridge_name: String,
    },
    /// `VIFBridge`: a port of a Linux bridge.
    Bridge {
        /// The name of the interface on the node.
        vif_name: String,
        /// The name of the bridge.
        bridge_name: String,
    },
    /// `VIFVHostUser`: a vhost-user socket, served by a switch in user space.
    #[serde(rename = "vhost_user")]
    VHostUser {
        /// The name of the interface on the node.
        vif_name: String,
        /// The path of the socket.
        path: String,
        /// The vhost-user mode: `client` or `server`. The server creates the socket.
        mode: String,
    },
    /// `VIFVlanNested`: a VLAN interface of a node that is a virtual machine, on the trunk port of the node.
    VlanNested {
        /// The name of the interface on the node.
        vif_name: String,
        /// The VLAN id, 1 to 4094.
        vlan_id: u16,
    },
    /// `VIFMacvlanNested`: a macvlan interface of a node that is a virtual machine, on the port of the node.
    MacvlanNested {
        /// The name of the interface on the node.
        vif_name: String,
    },
    /// `VIFDPDKNested`: a PCI device of a node that is a virtual machine, driven by DPDK.
    DpdkNested {
        /// The name of the interface on the node.
        vif_name: String,
        /// The address of the device on the PCI bus.
        pci_address: String,
        /// The name of the device's driver.
        dev_driver: String,
    },
    /// A class that this program does not know. It is kept unchanged when the VIF is read and written.
    Other {
        /// The name of the class.
        name: String,
        /// The version of the class.
        version: String,
        /// The fields of the class, without the fields that every VIF has.
        fields: Map<String, Value>,
    },
}

/// The properties of a port that the virtual switch of the node needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PortProfile {
    /// `VIFPortProfileOpenVSwitch`: a port of Open vSwitch.
    #[serde(rename = "open_vswitch")]
    OpenVSwitch {
        /// The id of the port, by which Neutron recognizes the interface in Open vSwitch (`iface-id`).
        interface_id: String,
    },
    /// A profile that this program does not know. It is kept unchanged when the VIF is read and written.
    Other {
        /// The name of the profile's class.
        name: String,
        /// The version of the class.
        version: String,
        /// The fields of the profile.
        fields: Map<String, Value>,
    },
}

/// Returns the addresses in the status of the pod (`podIP` and `podIPs`), without invalid ones. Only the node and the controllers of a
/// cluster write them.
pub fn addresses_of(pod: &Pod) -> Vec<IpAddr> {
    let Some(status) = &pod.status else { return Vec::new() };
    let others = status.pod_ips.iter().flatten().map(|ip| ip.ip.as_str());
    let mut addresses: Vec<_> =
        status.pod_ip.as_deref().into_iter().chain(others).filter_map(|ip| ip.parse().ok()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

impl Vif {
    /// Returns the addresses of the VIF in all its subnets.
    pub fn ips(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.subnets.iter().flat_map(|subnet| subnet.ips.iter().copied())
    }

    /// Returns `true` if an address in the status of the pod is one of the VIF.
    pub fn has_address_of(&self, pod: &Pod) -> bool {
        let addresses = addresses_of(pod);
        self.ips().any(|ip| addresses.contains(&ip))
    }

    /// Returns the properties that determine the port, the VLAN and the addresses that the interface gives access to. The
    /// activation does not change them. The properties of the network and of the subnets may change in the cloud, so they are not
    /// included, except for the bridge of a VIF that is plugged into one.
    pub fn binding(&self) -> VifBinding<'_> {
        let Self { id, address, plugin, class, network, port_profile, .. } = self;
        let bridge = network.bridge.as_deref().filter(|_| plugin != NOOP);
        VifBinding {
            id,
            address: *address,
            plugin,
            class,
            bridge,
            port_profile: port_profile.as_ref(),
            ips: self.ips().collect(),
        }
    }
}

/// The name of the plug-in of VIFs that the node does not plug into a bridge.
const NOOP: &str = "noop";

/// The properties of a VIF that determine the port, the VLAN and the addresses that it gives access to. Two VIFs with the same
/// binding are the same interface.
#[derive(Clone, Debug, PartialEq)]
pub struct VifBinding<'a> {
    id: &'a VifId,
    address: MacAddress,
    plugin: &'a str,
    class: &'a VifClass,
    bridge: Option<&'a str>,
    port_profile: Option<&'a PortProfile>,
    ips: Vec<IpAddr>,
}

/// A MAC address (EUI-48), as six octets. In JSON and as text, six pairs of hexadecimal digits with colons: `fa:16:3e:00:00:01`.
/// It is parsed in either case and written in lower case.
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

/// The error of a string that is not a MAC address. It contains the string.
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
