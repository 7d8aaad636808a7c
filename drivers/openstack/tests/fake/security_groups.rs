//! Security groups and their rules.

use std::collections::BTreeMap;

use hyper::Method;
use serde_json::{Value, json};

use super::State;
use super::answer::{Answer, error, not_found};
use super::query::Query;

/// The fields by which Neutron tells rules apart.
const TELLING: [&str; 8] = [
    "security_group_id",
    "direction",
    "ethertype",
    "protocol",
    "port_range_min",
    "port_range_max",
    "remote_ip_prefix",
    "remote_group_id",
];

impl State {
    pub(crate) fn security_groups(
        &mut self,
        method: &Method,
        parts: &[&str],
        query: &Query,
        body: &Value,
    ) -> Answer {
        match (method.as_str(), parts) {
            ("POST", ["security-groups"]) => self.create_group(&body["security_group"]),
            ("GET", ["security-groups"]) if self.hides_groups => {
                query.list("security_groups", &BTreeMap::new(), self.page)
            }
            ("GET", ["security-groups"]) => query.list("security_groups", &self.groups, self.page),
            ("POST", ["security-group-rules"]) if body["security_group_rules"].is_array() => {
                self.create_rules(body["security_group_rules"].as_array().unwrap())
            }
            ("POST", ["security-group-rules"]) => {
                match self.create_rules(std::slice::from_ref(&body["security_group_rule"])) {
                    made if made.is_success() => {
                        let group = body["security_group_rule"]["security_group_id"].as_str().unwrap();
                        let rule =
                            self.groups[group]["security_group_rules"].as_array().unwrap().last().cloned();
                        Answer::json(201, json!({ "security_group_rule": rule }))
                    }
                    refusal => refusal,
                }
            }
            ("DELETE", ["security-group-rules", id]) => self.delete_rule(id),
            (_, ["security-groups", id]) if !self.groups.contains_key(*id) => {
                not_found("SecurityGroupNotFound", id)
            }
            ("GET", ["security-groups", id]) => {
                Answer::json(200, json!({ "security_group": self.groups[*id] }))
            }
            ("DELETE", ["security-groups", id]) => self.delete_group(id),
            _ => error(404, "HTTPNotFound", "The resource could not be found."),
        }
    }

    /// As with the real one, a new group lets everything out.
    fn create_group(&mut self, wish: &Value) -> Answer {
        if self.group_quota.is_some_and(|quota| self.groups.len() >= quota) {
            return error(409, "OverQuota", "Quota exceeded for resources: ['security_group'].");
        }
        let id = self.id();
        let out = |rule: String, ethertype: &str| {
            json!({ "id": rule, "security_group_id": id, "direction": "egress", "ethertype": ethertype, "protocol": null,
                "port_range_min": null, "port_range_max": null, "remote_ip_prefix": null, "remote_group_id": null })
        };
        let rules = [out(self.id(), "IPv4"), out(self.id(), "IPv6")];
        let group = json!({ "id": id, "name": wish["name"], "project_id": wish["project_id"],
            "description": wish["description"].as_str().unwrap_or_default(), "security_group_rules": rules });
        self.groups.insert(id, group.clone());
        Answer::json(201, json!({ "security_group": group }))
    }

    /// All of them or none.
    fn create_rules(&mut self, wishes: &[Value]) -> Answer {
        let all = self.groups.values().flat_map(|group| group["security_group_rules"].as_array().unwrap());
        let count = all.clone().count();
        if self.rule_quota.is_some_and(|quota| count + wishes.len() > quota) {
            return error(409, "OverQuota", "Quota exceeded for resources: ['security_group_rule'].");
        }
        let same = |a: &Value, b: &Value| {
            TELLING
                .iter()
                .all(|field| a.get(*field).unwrap_or(&Value::Null) == b.get(*field).unwrap_or(&Value::Null))
        };
        let there: Vec<Value> = all.cloned().collect();
        for wish in wishes {
            for group in ["security_group_id", "remote_group_id"] {
                if let Some(id) =
                    wish.get(group).and_then(Value::as_str).filter(|id| !self.groups.contains_key(*id))
                {
                    return not_found("SecurityGroupNotFound", id);
                }
            }
            if let Some(known) = there.iter().find(|known| same(known, wish)) {
                let message = format!("Security group rule already exists. Rule id is {}.", known["id"]);
                return error(409, "SecurityGroupRuleExists", &message);
            }
        }
        let mut made = Vec::new();
        for wish in wishes {
            let mut rule = json!({ "id": self.id() });
            for field in TELLING {
                rule[field] = wish.get(field).cloned().unwrap_or_default();
            }
            let group = self.groups.get_mut(wish["security_group_id"].as_str().unwrap()).unwrap();
            group["security_group_rules"].as_array_mut().unwrap().push(rule.clone());
            made.push(rule);
        }
        Answer::json(201, json!({ "security_group_rules": made }))
    }

    fn delete_rule(&mut self, id: &str) -> Answer {
        for group in self.groups.values_mut() {
            let rules = group["security_group_rules"].as_array_mut().unwrap();
            if let Some(position) = rules.iter().position(|rule| rule["id"] == id) {
                rules.remove(position);
                return Answer::empty(204);
            }
        }
        not_found("SecurityGroupRuleNotFound", id)
    }

    /// Rules of other groups that name it go with it.
    fn delete_group(&mut self, id: &str) -> Answer {
        let uses = |port: &Value| port["security_groups"].as_array().unwrap().iter().any(|group| group == id);
        if self.ports.values().any(uses) {
            return error(409, "SecurityGroupInUse", &format!("Security Group {id} in use."));
        }
        self.groups.remove(id);
        for group in self.groups.values_mut() {
            let rules = group["security_group_rules"].as_array_mut().unwrap();
            rules.retain(|rule| rule["remote_group_id"] != id);
        }
        Answer::empty(204)
    }
}
