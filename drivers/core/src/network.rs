//! Networks and subnets of the cloud.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::id::{NetworkId, SubnetId};

/// A network, as the machine that binds a VIF must know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// The id.
    pub id: NetworkId,
    /// The name, for people.
    pub label: Option<String>,
    /// The bridge by which the network is reached on a node.
    pub bridge: Option<String>,
    /// The largest packet in bytes; none where the network does not say.
    pub mtu: Option<u32>,
    /// `true` if the node must create the bridge.
    pub should_provide_bridge: bool,
    /// `true` if the node must create the VLAN interface.
    pub should_provide_vlan: bool,
}

impl Network {
    /// A network of which only the id is known.
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

/// A subnet with the network to which it belongs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subnet {
    /// The id.
    pub id: SubnetId,
    /// The network.
    pub network: Network,
    /// The addresses.
    pub cidr: IpNet,
    /// The address of the router.
    pub gateway: Option<IpAddr>,
    /// The name servers.
    pub dns: Vec<IpAddr>,
    /// Routes beside the default one.
    pub routes: Vec<Route>,
}

impl Subnet {
    /// Combines the subnet with the addresses of a VIF.
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

/// A subnet as one VIF sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubnetAddresses {
    /// The addresses of the subnet.
    pub cidr: IpNet,
    /// The address of the router.
    pub gateway: Option<IpAddr>,
    /// The name servers.
    pub dns: Vec<IpAddr>,
    /// Routes beside the default one.
    pub routes: Vec<Route>,
    /// The addresses of the VIF.
    pub ips: Vec<IpAddr>,
}

/// A route of a subnet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The destination.
    pub cidr: IpNet,
    /// The next hop.
    pub gateway: IpAddr,
}
