//! Networks and subnets: no more of them than ports need.

use hyper::Method;
use ipnet::Ipv4Net;
use serde_json::{Value, json};

use super::State;
use super::answer::{Answer, error, not_found};
use super::query::Query;

impl State {
    pub(crate) fn networks(
        &mut self,
        method: &Method,
        parts: &[&str],
        query: &Query,
        body: &Value,
    ) -> Answer {
        match (method.as_str(), parts) {
            ("POST", ["networks"]) => {
                let id = self.id();
                let network = json!({
                    "id": id, "name": body["network"]["name"], "mtu": 1450, "project_id": body["network"]["project_id"],
                    "description": body["network"]["description"].as_str().unwrap_or_default(), "subnets": [],
                });
                self.networks.insert(id, network.clone());
                Answer::json(201, json!({ "network": network }))
            }
            ("POST", ["routers"]) => {
                let id = self.id();
                Answer::json(201, json!({ "router": { "id": id } }))
            }
            ("PUT", ["routers", _, "add_router_interface"]) => Answer::json(200, json!({})),
            ("POST", ["subnets"]) => self.create_subnet(&body["subnet"]),
            ("GET", [collection @ ("networks" | "subnets"), id]) => {
                let (things, key) = match *collection {
                    "networks" => (&self.networks, "network"),
                    _ => (&self.subnets, "subnet"),
                };
                match things.get(*id) {
                    Some(thing) => Answer::json(200, json!({ key: thing })),
                    None => not_found(
                        &format!("{}NotFound", if key == "subnet" { "Subnet" } else { "Network" }),
                        id,
                    ),
                }
            }
            ("GET", ["networks"]) => query.list("networks", &self.networks, self.page),
            ("GET", ["subnets"]) => query.list("subnets", &self.subnets, self.page),
            ("PUT", [collection @ ("networks" | "subnets"), id]) => {
                let (things, key) = match *collection {
                    "networks" => (&mut self.networks, "network"),
                    _ => (&mut self.subnets, "subnet"),
                };
                let Some(thing) = things.get_mut(*id) else { return not_found("NetworkNotFound", id) };
                for (name, value) in body[key].as_object().unwrap() {
                    thing[name] = value.clone();
                }
                Answer::json(200, json!({ key: thing }))
            }
            ("DELETE", ["networks", id]) => {
                if self.ports.values().any(|port| port["network_id"] == **id) {
                    return error(
                        409,
                        "NetworkInUse",
                        "There are one or more ports still in use on the network.",
                    );
                }
                self.subnets.retain(|_, subnet| subnet["network_id"] != **id);
                match self.networks.remove(*id) {
                    Some(_) => Answer::empty(204),
                    None => not_found("NetworkNotFound", id),
                }
            }
            _ => error(404, "HTTPNotFound", "The resource could not be found."),
        }
    }

    fn create_subnet(&mut self, wish: &Value) -> Answer {
        let Some(network) = wish["network_id"].as_str().filter(|id| self.networks.contains_key(*id)) else {
            return not_found("NetworkNotFound", "The network");
        };
        let cidr: Ipv4Net = wish["cidr"].as_str().unwrap().parse().unwrap();
        let gateway = cidr.hosts().next().unwrap();
        let subnet = json!({
            "network_id": network, "cidr": cidr, "gateway_ip": gateway, "ip_version": 4,
            "dns_nameservers": ["10.0.0.53"], "host_routes": [{ "destination": "192.0.2.0/24", "nexthop": gateway }],
        });
        let id = self.id();
        let mut subnet = subnet;
        subnet["id"] = json!(id);
        let network = network.to_owned();
        self.networks.get_mut(&network).unwrap()["subnets"].as_array_mut().unwrap().push(json!(id));
        self.subnets.insert(id, subnet.clone());
        Answer::json(201, json!({ "subnet": subnet }))
    }

    /// An address of the subnet that no port has: the one that is asked for, or the lowest.
    pub(crate) fn address(&self, subnet: &str, wish: Option<&str>) -> Result<String, Answer> {
        let taken = |address: &str| {
            let fixed_ips = self.ports.values().flat_map(|port| port["fixed_ips"].as_array().unwrap());
            fixed_ips.into_iter().any(|fixed| fixed["subnet_id"] == subnet && fixed["ip_address"] == address)
        };
        let known = self.subnets.get(subnet).ok_or_else(|| not_found("SubnetNotFound", subnet))?;
        let cidr: Ipv4Net = known["cidr"].as_str().unwrap().parse().unwrap();
        let mut free = cidr.hosts().skip(1).map(|address| address.to_string());
        match wish {
            Some(wish) if taken(wish) => {
                Err(error(409, "IpAddressAlreadyAllocated", "IP address already allocated."))
            }
            Some(wish) => Ok(wish.to_owned()),
            None => free.find(|address| !taken(address)).ok_or_else(|| {
                error(409, "IpAddressGenerationFailure", "No more IP addresses available on network.")
            }),
        }
    }
}
