//! Trunks.

use hyper::Method;
use serde_json::{Value, json};

use super::State;
use super::answer::{Answer, error, not_found};
use super::query::Query;

impl State {
    pub(crate) fn trunks(&mut self, method: &Method, parts: &[&str], query: &Query, body: &Value) -> Answer {
        match (method.as_str(), parts) {
            ("POST", ["trunks"]) => {
                let id = self.id();
                let port = &body["trunk"]["port_id"];
                let trunk = json!({ "id": id, "port_id": port, "status": "DOWN", "sub_ports": [] });
                self.trunks.insert(id, trunk.clone());
                Answer::json(201, json!({ "trunk": trunk }))
            }
            ("GET", ["trunks"]) => query.list("trunks", &self.trunks, self.page),
            (_, ["trunks", id, ..]) if !self.trunks.contains_key(*id) => not_found("TrunkNotFound", id),
            ("DELETE", ["trunks", id])
                if self.ports[self.trunks[*id]["port_id"].as_str().unwrap()]["binding:host_id"] != "" =>
            {
                error(409, "TrunkInUse", "Trunk is currently in use.")
            }
            ("DELETE", ["trunks", id]) => {
                self.trunks.remove(*id);
                Answer::empty(204)
            }
            ("PUT", ["trunks", id, "add_subports"]) => {
                self.add_subports(id, body["sub_ports"].as_array().unwrap())
            }
            ("PUT", ["trunks", id, "remove_subports"]) => {
                self.remove_subports(id, body["sub_ports"].as_array().unwrap())
            }
            _ => error(404, "HTTPNotFound", "The resource could not be found."),
        }
    }

    fn add_subports(&mut self, id: &str, wishes: &[Value]) -> Answer {
        for wish in wishes {
            let port = wish["port_id"].as_str().unwrap();
            if !self.ports.contains_key(port) {
                return not_found("PortNotFound", port);
            }
            if self.ports[port]["device_id"] != "" {
                return error(409, "PortInUse", "Port already has an attached device.");
            }
            if self.trunk_with(port).is_some() {
                return error(409, "TrunkPortInUse", "Port is in use by another trunk.");
            }
            let subports = self.trunks[id]["sub_ports"].as_array().unwrap();
            if subports.iter().any(|other| other["segmentation_id"] == wish["segmentation_id"]) {
                return error(
                    409,
                    "DuplicateSubPort",
                    "segmentation_type vlan and segmentation_id already in use.",
                );
            }
        }
        for wish in wishes {
            self.ports.get_mut(wish["port_id"].as_str().unwrap()).unwrap()["device_owner"] =
                json!("trunk:subport");
            self.trunks.get_mut(id).unwrap()["sub_ports"].as_array_mut().unwrap().push(wish.clone());
        }
        Answer::json(200, self.trunks[id].clone())
    }

    fn remove_subports(&mut self, id: &str, wishes: &[Value]) -> Answer {
        let trunk = self.trunks.get_mut(id).unwrap();
        let subports = trunk["sub_ports"].as_array_mut().unwrap();
        let missing =
            wishes.iter().find(|wish| !subports.iter().any(|other| other["port_id"] == wish["port_id"]));
        if let Some(missing) = missing {
            return not_found("SubPortNotFound", missing["port_id"].as_str().unwrap());
        }
        subports.retain(|other| !wishes.iter().any(|wish| wish["port_id"] == other["port_id"]));
        Answer::json(200, trunk.clone())
    }

    /// The trunk of which the port is a subport.
    pub(crate) fn trunk_with(&self, port: &str) -> Option<&str> {
        let of = |trunk: &&Value| {
            trunk["sub_ports"].as_array().unwrap().iter().any(|other| other["port_id"] == port)
        };
        self.trunks.values().find(of)?["id"].as_str()
    }
}
