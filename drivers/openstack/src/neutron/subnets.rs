//! Subnets and networks, for ports that are found by their mark.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use ipnet::IpNet;
use serde::Deserialize;
use staffetta_driver::{DriverError, Network, NetworkId, Route, Subnet, SubnetId};

use super::api::Neutron;

const STEP: &str = "read the subnets of ports";

#[derive(Deserialize)]
struct SubnetForm {
    id: SubnetId,
    network_id: NetworkId,
    cidr: IpNet,
    gateway_ip: Option<IpAddr>,
    #[serde(default)]
    dns_nameservers: Vec<IpAddr>,
    #[serde(default)]
    host_routes: Vec<RouteForm>,
}

#[derive(Deserialize)]
struct RouteForm {
    destination: IpNet,
    nexthop: IpAddr,
}

#[derive(Deserialize)]
struct NetworkForm {
    id: NetworkId,
    #[serde(default)]
    name: String,
    mtu: Option<u32>,
}

impl Neutron {
    /// Those subnets of these ids that exist, each with its network: two calls, however many there are.
    pub(crate) async fn subnets(&self, ids: &HashSet<SubnetId>) -> Result<HashMap<SubnetId, Subnet>, DriverError> {
        let ids: Vec<&SubnetId> = ids.iter().collect();
        let fields = ["id", "network_id", "cidr", "gateway_ip", "dns_nameservers", "host_routes"];
        let subnets: Vec<SubnetForm> = self.by_id(STEP, "subnets", &ids, &fields).await?;
        let networks: HashSet<&NetworkId> = subnets.iter().map(|subnet| &subnet.network_id).collect();
        let networks: Vec<&NetworkId> = networks.into_iter().collect();
        let networks: Vec<NetworkForm> = self.by_id(STEP, "networks", &networks, &["id", "name", "mtu"]).await?;
        let networks: HashMap<NetworkId, Network> =
            networks.into_iter().map(|network| (network.id.clone(), network.into())).collect();
        let subnet = |form: SubnetForm| {
            let network = networks.get(&form.network_id).cloned();
            let network = network.unwrap_or_else(|| Network::new(form.network_id.clone()));
            (form.id.clone(), form.in_network(network))
        };
        Ok(subnets.into_iter().map(subnet).collect())
    }
}

impl SubnetForm {
    fn in_network(self, network: Network) -> Subnet {
        let route = |route: RouteForm| Route { cidr: route.destination, gateway: route.nexthop };
        Subnet {
            id: self.id,
            network,
            cidr: self.cidr,
            gateway: self.gateway_ip,
            dns: self.dns_nameservers,
            routes: self.host_routes.into_iter().map(route).collect(),
        }
    }
}

impl From<NetworkForm> for Network {
    fn from(form: NetworkForm) -> Self {
        Self { label: Some(form.name).filter(|name| !name.is_empty()), mtu: form.mtu, ..Self::new(form.id) }
    }
}
