//! The fields of resources of Neutron and Octavia that tests read.

use std::net::IpAddr;

use serde::Deserialize;

/// A port, as Neutron shows it to an administrator.
#[derive(Clone, Debug, Deserialize)]
pub struct Port {
    /// The id.
    pub id: String,
    /// The name.
    pub name: String,
    /// `ACTIVE`, `DOWN`, `BUILD` ...
    pub status: String,
    /// The network.
    pub network_id: String,
    /// The MAC address.
    pub mac_address: String,
    /// The addresses.
    pub fixed_ips: Vec<FixedIp>,
    /// The additional addresses that are allowed on the port.
    pub allowed_address_pairs: Vec<AddressPair>,
    /// The id of the device that uses it.
    pub device_id: String,
    /// The kind of device that uses it.
    pub device_owner: String,
    /// The description.
    pub description: String,
    /// The tags.
    pub tags: Vec<String>,
    /// The security groups.
    pub security_groups: Vec<String>,
    /// The node to which the port is, or will be, bound.
    #[serde(rename = "binding:host_id")]
    pub host: String,
    /// The type of the binding: `ovs`, `unbound`, `binding_failed`.
    #[serde(rename = "binding:vif_type")]
    pub vif_type: String,
}

impl Port {
    /// Returns the first address of the port.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        self.fixed_ips.first().map(|fixed| fixed.ip_address)
    }

    /// Returns `true` if the port is ACTIVE.
    #[must_use]
    pub fn active(&self) -> bool {
        self.status == "ACTIVE"
    }
}

/// A load balancer with the members of its pools, as Octavia shows it to an administrator.
#[derive(Clone, Debug)]
pub struct Balancer {
    /// The id.
    pub id: String,
    /// The name.
    pub name: String,
    /// `ACTIVE`, `PENDING_UPDATE`, `ERROR` ...
    pub status: String,
    /// The id of the port of its address.
    pub port: String,
    /// The listeners as `TCP:80`, sorted, each with its members as `10.0.0.1:8080`, sorted.
    pub listeners: Vec<(String, Vec<String>)>,
    /// The ids of its pools.
    pub pools: Vec<String>,
}

/// An address in a subnet.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct FixedIp {
    /// The subnet.
    pub subnet_id: String,
    /// The address.
    pub ip_address: IpAddr,
}

/// An additional address that is allowed on a port.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct AddressPair {
    /// The address, or a prefix.
    pub ip_address: String,
    /// The MAC address.
    pub mac_address: String,
}

/// A network with one subnet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subnet {
    /// The id of the subnet.
    pub id: String,
    /// The id of the network.
    pub network: String,
}

/// A trunk on the port of a node. Its VLANs are other ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trunk {
    /// The id of the trunk.
    pub id: String,
    /// The id of the node's port.
    pub port: String,
    /// The address of the node.
    pub address: IpAddr,
}
