//! Ports.

use hyper::Method;
use serde_json::{Value, json};

use super::State;
use super::answer::{Answer, error, not_found};
use super::query::Query;

impl State {
    pub(crate) fn ports(
        &mut self,
        method: &Method,
        parts: &[&str],
        query: &Query,
        body: &Value,
        revision: Option<&str>,
    ) -> Answer {
        match (method.as_str(), parts) {
            ("POST", ["ports"]) if body["ports"].is_array() => {
                self.create_ports(body["ports"].as_array().unwrap())
            }
            ("POST", ["ports"]) => match self.create_port(&body["port"], false) {
                Ok(port) => Answer::json(201, json!({ "port": port })),
                Err(refusal) => refusal,
            },
            ("GET", ["ports"]) => {
                let shown = self.ports.iter().map(|(id, port)| (id.clone(), self.shown(port))).collect();
                let unfiltered = self.ignores_descriptions.then(|| query.without("description"));
                unfiltered.as_ref().unwrap_or(query).list("ports", &shown, self.page)
            }
            (_, ["ports", id, ..]) if !self.ports.contains_key(*id) => not_found("PortNotFound", id),
            ("GET", ["ports", id]) => Answer::json(200, json!({ "port": self.shown(&self.ports[*id]) })),
            ("PUT", ["ports", id]) => self.change_port(id, &body["port"], revision),
            ("PUT", ["ports", id, "tags", tag]) => {
                let tags = self.ports.get_mut(*id).unwrap()["tags"].as_array_mut().unwrap();
                tags.push(json!(tag));
                Answer::json(201, Value::Null)
            }
            ("DELETE", ["ports", id]) if self.trunk_with(id).is_some() => {
                error(409, "PortInUseAsSubPort", "Port is currently a subport for trunk.")
            }
            ("DELETE", ["ports", id]) => self.constrained(id, revision).unwrap_or_else(|| {
                self.ports.remove(*id);
                Answer::empty(204)
            }),
            _ => error(404, "HTTPNotFound", "The resource could not be found."),
        }
    }

    /// All of them or none.
    fn create_ports(&mut self, wishes: &[Value]) -> Answer {
        let mut made = Vec::new();
        for wish in wishes {
            match self.create_port(wish, self.binds_late) {
                Ok(port) => made.push(port),
                Err(refusal) => {
                    for port in made {
                        self.ports.remove(port["id"].as_str().unwrap());
                    }
                    return refusal;
                }
            }
        }
        Answer::json(201, json!({ "ports": made }))
    }

    fn create_port(&mut self, wish: &Value, unbound_yet: bool) -> Result<Value, Answer> {
        let network = wish["network_id"].as_str().unwrap_or_default().to_owned();
        if !self.networks.contains_key(&network) {
            return Err(not_found("NetworkNotFound", &network));
        }
        if wish.get("tags").is_some() && !self.extensions.contains("tag-ports-during-bulk-creation") {
            return Err(error(400, "HTTPBadRequest", "Attribute 'tags' not allowed in POST"));
        }
        if self.quota.is_some_and(|quota| self.ports.len() >= quota) {
            return Err(error(409, "OverQuota", "Quota exceeded for resources: ['port']."));
        }
        self.known_groups(wish)?;
        let mut fixed_ips = Vec::new();
        for fixed in wish["fixed_ips"].as_array().unwrap() {
            let subnet = fixed["subnet_id"].as_str().unwrap();
            let address = self.address(subnet, fixed["ip_address"].as_str())?;
            fixed_ips.push(json!({ "subnet_id": subnet, "ip_address": address }));
        }
        let id = self.id();
        let default =
            self.groups.values().find(|group| group["name"] == "default").map(|group| group["id"].clone());
        let mut port = json!({
            "id": id, "network_id": network, "project_id": wish["project_id"], "fixed_ips": fixed_ips,
            "mac_address": format!("fa:16:3e:{}:{}:{}", &id[2..4], &id[4..6], &id[6..8]), "status": "DOWN",
            "name": wish["name"].as_str().unwrap_or_default(), "description": wish["description"].as_str().unwrap_or_default(),
            "device_owner": wish["device_owner"].as_str().unwrap_or_default(),
            "device_id": wish["device_id"].as_str().unwrap_or_default(), "tags": wish.get("tags").cloned().unwrap_or(json!([])),
            "security_groups": wish.get("security_groups").cloned().unwrap_or_else(|| default.into_iter().collect()),
            "allowed_address_pairs": [], "revision_number": 1,
        });
        self.bind(&mut port, wish["binding:host_id"].as_str().unwrap_or_default());
        self.ports.insert(id, port.clone());
        if unbound_yet {
            port["binding:vif_type"] = json!("unbound");
            port["binding:vif_details"] = json!({});
        }
        Ok(port)
    }

    fn bind(&self, port: &mut Value, host: &str) {
        let (kind, details) = if host.is_empty() {
            ("unbound", json!({}))
        } else if self.hosts.contains(host) {
            ("ovs", json!({ "bridge_name": "br-int", "port_filter": true, "ovs_hybrid_plug": false }))
        } else {
            ("binding_failed", json!({}))
        };
        port["binding:host_id"] = json!(host);
        port["binding:vif_type"] = json!(kind);
        port["binding:vif_details"] = details;
    }

    /// The security groups of a wish have to be there.
    fn known_groups(&self, wish: &Value) -> Result<(), Answer> {
        let mut groups = wish["security_groups"].as_array().into_iter().flatten();
        let unknown = groups.find(|id| !self.groups.contains_key(id.as_str().unwrap()));
        unknown.map_or(Ok(()), |id| Err(not_found("SecurityGroupNotFound", id.as_str().unwrap())))
    }

    /// The refusal of a change of a port, or of its deletion, whose condition does not hold, or is not understood.
    fn constrained(&self, id: &str, revision: Option<&str>) -> Option<Answer> {
        let revision = revision?;
        if !self.extensions.contains("revision-if-match") {
            let detail = "This server does not support constraining operations based on revision numbers";
            return Some(error(400, "HTTPBadRequest", detail));
        }
        let current = format!("revision_number={}", self.ports[id]["revision_number"]);
        let refusal = || error(412, "RevisionNumberConstraintFailed", "Constrained to another revision.");
        (revision != current).then(refusal)
    }

    fn change_port(&mut self, id: &str, change: &Value, revision: Option<&str>) -> Answer {
        let mut port = self.ports[id].clone();
        if let Some(refusal) = self.constrained(id, revision) {
            return refusal;
        }
        let pairs = change["allowed_address_pairs"].as_array().map_or(0, Vec::len);
        if pairs > self.pairs {
            return error(
                400,
                "AllowedAddressPairExhausted",
                "The number of allowed address pairs exceeds the maximum.",
            );
        }
        if let Err(refusal) = self.known_groups(change) {
            return refusal;
        }
        for (name, value) in change.as_object().unwrap() {
            port[name] = value.clone();
        }
        // A pair without a hardware address is shown with that of the port.
        for pair in port["allowed_address_pairs"].as_array_mut().unwrap() {
            if pair.get("mac_address").is_none() {
                pair["mac_address"] = self.ports[id]["mac_address"].clone();
            }
        }
        if let Some(host) = change["binding:host_id"].as_str() {
            self.bind(&mut port, host);
        }
        port["revision_number"] = json!(port["revision_number"].as_u64().unwrap() + 1);
        self.ports.insert(id.to_owned(), port.clone());
        Answer::json(200, json!({ "port": self.shown(&port) }))
    }

    /// The report of an agent, which does not know unbound ports.
    pub(crate) fn agent(&mut self, id: &str, up: bool) -> Answer {
        let Some(port) = self.ports.get_mut(id) else { return not_found("PortNotFound", id) };
        port["status"] = json!(if up { "ACTIVE" } else { "DOWN" });
        port["revision_number"] = json!(port["revision_number"].as_u64().unwrap() + 1);
        Answer::empty(204)
    }

    /// Somebody else changes the port in the path.
    pub(crate) fn interfere(&mut self, path: &str) {
        let port = self.ports.get_mut(path.trim_start_matches("ports/")).unwrap();
        let foreign = json!({ "ip_address": "192.0.2.77", "mac_address": "fa:16:3e:77:77:77" });
        port["allowed_address_pairs"].as_array_mut().unwrap().push(foreign);
        port["revision_number"] = json!(port["revision_number"].as_u64().unwrap() + 1);
    }

    /// The port with what it shows of the trunk whose parent it is.
    fn shown(&self, port: &Value) -> Value {
        let mut shown = port.clone();
        if let Some(trunk) = self.trunks.values().find(|trunk| trunk["port_id"] == port["id"]) {
            shown["trunk_details"] = json!({ "trunk_id": trunk["id"], "sub_ports": trunk["sub_ports"] });
        }
        if !self.extensions.contains("revision-if-match") {
            shown.as_object_mut().unwrap().remove("revision_number");
        }
        if self.hides_bindings {
            shown.as_object_mut().unwrap().retain(|name, _| !name.starts_with("binding:"));
        }
        shown
    }
}
