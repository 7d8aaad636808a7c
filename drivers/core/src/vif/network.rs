//! Networks and subnets of the cloud.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::id::{NetworkId, SubnetId};

/// A cloud network, with the properties that a node needs to bind a VIF.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// The id of the network in the cloud.
    pub id: NetworkId,
    /// The name of the network, for people; `None` if it is not known.
    pub label: Option<String>,
    /// The name of the bridge on a node that connects to the network; `None` if there is none.
    pub bridge: Option<String>,
    /// The MTU in bytes; `None` if the cloud does not report it.
    pub mtu: Option<u32>,
    /// `true` if the node must create the bridge.
    pub should_provide_bridge: bool,
    /// `true` if the node must create the VLAN interface.
    pub should_provide_vlan: bool,
}

impl Network {
    /// Creates a network of which only the id is known.
    pub fn new(id: NetworkId) -> Self {
        Self {
            id,
            label: None,
            bridge: None,
            mtu: None,
            should_provide_bridge: false,
            should_provide_vlan: false,
        }
    }
}

/// A subnet and the network to which it belongs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subnet {
    /// The id of the subnet in the cloud.
    pub id: SubnetId,
    /// The network to which the subnet belongs.
    pub network: Network,
    /// The range of addresses of the subnet.
    pub cidr: IpNet,
    /// The default gateway; `None` if the subnet has none.
    pub gateway: Option<IpAddr>,
    /// The addresses of the DNS servers for hosts in the subnet.
    pub dns: Vec<IpAddr>,
    /// The routes other than the default route.
    pub routes: Vec<Route>,
}

impl Subnet {
    /// Returns the subnet with the addresses that one VIF has in it.
    pub fn with_ips(&self, ips: Vec<IpAddr>) -> SubnetAddresses {
        SubnetAddresses {
            cidr: self.cidr,
            gateway: self.gateway,
            dns: self.dns.clone(),
            routes: self.routes.clone(),
            ips,
        }
    }
}

/// A subnet, with the addresses that one VIF has in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubnetAddresses {
    /// The range of addresses of the subnet.
    pub cidr: IpNet,
    /// The default gateway; `None` if the subnet has none.
    pub gateway: Option<IpAddr>,
    /// The addresses of the DNS servers for hosts in the subnet.
    pub dns: Vec<IpAddr>,
    /// The routes other than the default route.
    pub routes: Vec<Route>,
    /// The addresses that the VIF has in the subnet.
    pub ips: Vec<IpAddr>,
}

/// A static route of a subnet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The destination network.
    pub cidr: IpNet,
    /// The address of the next hop.
    pub gateway: IpAddr,
}
