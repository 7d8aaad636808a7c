//! Floating IPs of one external network.

use hyper::Method;
use serde_json::{Value, json};

use super::State;
use super::answer::{Answer, error, not_found};
use super::query::Query;

impl State {
    pub(crate) fn floating_ips(
        &mut self,
        method: &Method,
        parts: &[&str],
        query: &Query,
        body: &Value,
        revision: Option<&str>,
    ) -> Answer {
        match (method.as_str(), parts) {
            ("GET", ["floatingips"]) => query.list("floatingips", &self.floating_ips, self.page),
            ("POST", ["floatingips"]) => self.create_floating_ip(&body["floatingip"]),
            (_, ["floatingips", id]) if !self.floating_ips.contains_key(*id) => {
                not_found("FloatingIPNotFound", id)
            }
            ("GET", ["floatingips", id]) => {
                Answer::json(200, json!({ "floatingip": query.fields(&self.floating_ips[*id]) }))
            }
            ("DELETE", ["floatingips", id]) => {
                self.floating_ips.remove(*id);
                Answer::empty(204)
            }
            ("PUT", ["floatingips", id]) => {
                let floating = self.floating_ips.get_mut(*id).unwrap();
                let number = floating["revision_number"].as_u64().unwrap();
                if revision.is_some_and(|wanted| wanted != format!("revision_number={number}")) {
                    return error(412, "RevisionNumberConstraintFailed", "Constrained to another revision.");
                }
                for (name, value) in body["floatingip"].as_object().unwrap() {
                    floating[name] = value.clone();
                }
                floating["revision_number"] = json!(number + 1);
                Answer::json(200, json!({ "floatingip": floating }))
            }
            _ => error(404, "HTTPNotFound", "The resource could not be found."),
        }
    }

    fn create_floating_ip(&mut self, wish: &Value) -> Answer {
        let network = wish["floating_network_id"].as_str().unwrap();
        let subnets = self.subnets.values().filter(|subnet| subnet["network_id"] == network);
        let named = |subnet: &&Value| wish["subnet_id"].is_null() || subnet["id"] == wish["subnet_id"];
        let Some(subnet) = subnets.clone().find(named) else {
            return not_found("NetworkNotFound", network);
        };
        let cidr: ipnet::Ipv4Net = subnet["cidr"].as_str().unwrap().parse().unwrap();
        let taken =
            |ip: &String| self.floating_ips.values().any(|other| other["floating_ip_address"] == **ip);
        let Some(ip) = cidr.hosts().skip(1).map(|ip| ip.to_string()).find(|ip| !taken(ip)) else {
            return error(409, "IpAddressGenerationFailure", "No more IP addresses available on network.");
        };
        let id = self.id();
        let floating = json!({
            "id": id, "floating_ip_address": ip, "floating_network_id": network, "project_id": wish["project_id"],
            "description": wish["description"].as_str().unwrap_or_default(), "port_id": wish["port_id"], "revision_number": 1,
        });
        self.floating_ips.insert(id, floating.clone());
        Answer::json(201, json!({ "floatingip": floating }))
    }
}
