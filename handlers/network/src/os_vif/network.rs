//! Networks and subnets, as `os_vif` writes them. The fields stand in the order in which they are written: sorted.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use staffetta_driver::{Network, Route, SubnetAddresses};

use super::NAMESPACE;
use crate::versioned_object::{Versioned, VersionedObject};

macro_rules! versioned {
    ($($form:ty, $name:literal, $version:literal;)+) => {$(
        impl VersionedObject for $form {
            const NAMESPACE: &'static str = NAMESPACE;
            const NAME: &'static str = $name;
            const VERSION: &'static str = $version;
        }
    )+};
}

versioned! {
    NetworkForm, "Network", "1.1";
    SubnetList, "SubnetList", "1.0";
    SubnetForm, "Subnet", "1.0";
    RouteList, "RouteList", "1.0";
    RouteForm, "Route", "1.0";
    FixedIpList, "FixedIPList", "1.0";
    FixedIp, "FixedIP", "1.0";
}

#[derive(Serialize, Deserialize)]
pub(super) struct NetworkForm {
    #[serde(skip_serializing_if = "Option::is_none")]
    bridge: Option<String>,
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtu: Option<u32>,
    /// A notion of nova-network: no network of today is one.
    #[serde(default)]
    multi_host: bool,
    #[serde(default)]
    should_provide_bridge: bool,
    #[serde(default)]
    should_provide_vlan: bool,
    subnets: Versioned<SubnetList>,
}

#[derive(Serialize, Deserialize)]
struct SubnetList {
    objects: Vec<Versioned<SubnetForm>>,
}

#[derive(Serialize, Deserialize)]
struct SubnetForm {
    cidr: IpNet,
    #[serde(default)]
    dns: Vec<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway: Option<IpAddr>,
    #[serde(default)]
    ips: Versioned<FixedIpList>,
    #[serde(default)]
    routes: Versioned<RouteList>,
}

#[derive(Default, Serialize, Deserialize)]
struct RouteList {
    objects: Vec<Versioned<RouteForm>>,
}

#[derive(Serialize, Deserialize)]
struct RouteForm {
    cidr: IpNet,
    gateway: IpAddr,
}

#[derive(Default, Serialize, Deserialize)]
struct FixedIpList {
    objects: Vec<Versioned<FixedIp>>,
}

#[derive(Serialize, Deserialize)]
struct FixedIp {
    address: IpAddr,
}

impl NetworkForm {
    pub(super) fn of(network: &Network, subnets: &[SubnetAddresses]) -> Self {
        Self {
            id: network.id.to_string(),
            bridge: network.bridge.clone(),
            label: network.label.clone(),
            mtu: network.mtu,
            multi_host: false,
            should_provide_bridge: network.should_provide_bridge,
            should_provide_vlan: network.should_provide_vlan,
            subnets: Versioned(SubnetList {
                objects: subnets.iter().map(SubnetForm::of).map(Versioned).collect(),
            }),
        }
    }

    pub(super) fn into_parts(self) -> (Network, Vec<SubnetAddresses>) {
        let network = Network {
            id: self.id.into(),
            label: self.label,
            bridge: self.bridge,
            mtu: self.mtu,
            should_provide_bridge: self.should_provide_bridge,
            should_provide_vlan: self.should_provide_vlan,
        };
        let subnets = self.subnets.0.objects;
        (network, subnets.into_iter().map(|Versioned(subnet)| subnet.into_addresses()).collect())
    }
}

impl SubnetForm {
    fn of(subnet: &SubnetAddresses) -> Self {
        let route = |route: &Route| Versioned(RouteForm { cidr: route.cidr, gateway: route.gateway });
        let ip = |address: &IpAddr| Versioned(FixedIp { address: *address });
        Self {
            cidr: subnet.cidr,
            dns: subnet.dns.clone(),
            gateway: subnet.gateway,
            ips: Versioned(FixedIpList { objects: subnet.ips.iter().map(ip).collect() }),
            routes: Versioned(RouteList { objects: subnet.routes.iter().map(route).collect() }),
        }
    }

    fn into_addresses(self) -> SubnetAddresses {
        let route =
            |Versioned(route): Versioned<RouteForm>| Route { cidr: route.cidr, gateway: route.gateway };
        SubnetAddresses {
            cidr: self.cidr,
            gateway: self.gateway,
            dns: self.dns,
            routes: self.routes.0.objects.into_iter().map(route).collect(),
            ips: self.ips.0.objects.into_iter().map(|Versioned(ip)| ip.address).collect(),
        }
    }
}
