//! The JSON bodies of security groups and their rules. The fields are those of Neutron's API reference.

use ipnet::IpNet;
use serde::Deserialize;
use serde_json::{Value, json};
use staffetta_driver::{
    Direction, ExistingRule, IpFamily, ProjectId, Protocol, ProtocolPorts, Remote, SecurityGroupId,
    SecurityRule, SecurityRuleId,
};

use crate::text::{or_default, without_nulls};

/// A security group rule that names its remote group, if it has one, by the group's id in Neutron.
pub(super) type Rule = SecurityRule<SecurityGroupId>;

/// A security group in a response.
#[derive(Debug, Deserialize)]
pub(super) struct SecurityGroupBody {
    /// The id of the group.
    pub(super) id: SecurityGroupId,
    /// The description, which contains the ownership mark.
    #[serde(default, deserialize_with = "or_default")]
    pub(super) description: String,
    /// The rules of the group.
    #[serde(default)]
    pub(super) security_group_rules: Vec<RuleBody>,
}

/// A security group rule in a response of Neutron.
#[derive(Debug, Deserialize)]
pub(super) struct RuleBody {
    id: SecurityRuleId,
    direction: String,
    ethertype: Option<String>,
    protocol: Option<String>,
    port_range_min: Option<i64>,
    port_range_max: Option<i64>,
    remote_ip_prefix: Option<String>,
    remote_group_id: Option<SecurityGroupId>,
    remote_address_group_id: Option<String>,
}

/// The names of directions in Neutron's API, for conversion both ways.
const DIRECTIONS: [(&str, Direction); 2] = [("ingress", Direction::Ingress), ("egress", Direction::Egress)];
/// The names of IP versions in Neutron's API (`ethertype`), for conversion both ways.
const FAMILIES: [(&str, IpFamily); 2] = [("IPv4", IpFamily::V4), ("IPv6", IpFamily::V6)];
/// The names and numbers of protocols that Neutron may return. Requests contain the first name of each
/// protocol.
const PROTOCOLS: [(&str, Protocol); 6] = [
    ("tcp", Protocol::Tcp),
    ("udp", Protocol::Udp),
    ("sctp", Protocol::Sctp),
    ("6", Protocol::Tcp),
    ("17", Protocol::Udp),
    ("132", Protocol::Sctp),
];

/// Returns the value that has the name `name` in the table `names`, such as [`DIRECTIONS`], or `None` if the table lacks the name.
fn value<T: Copy>(names: &[(&str, T)], name: &str) -> Option<T> {
    names.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}

/// Returns the first name of `value` in the table `names`, such as [`DIRECTIONS`], or `None` if the table lacks the value.
fn name<T: PartialEq>(names: &[(&'static str, T)], value: &T) -> Option<&'static str> {
    names.iter().find(|(_, known)| known == value).map(|(name, _)| *name)
}

impl RuleBody {
    /// Converts the rule to an [`ExistingRule`]: its id, and its content unless it has properties that this driver never sets.
    pub(super) fn existing(self) -> ExistingRule {
        ExistingRule { rule: self.rule(), id: self.id }
    }

    /// Converts the rule, or returns `None` if it has properties that [`new_rule`] never sets.
    fn rule(&self) -> Option<Rule> {
        let direction = value(&DIRECTIONS, &self.direction)?;
        let family = value(&FAMILIES, self.ethertype.as_deref()?)?;
        let remote = match (&self.remote_ip_prefix, &self.remote_group_id, &self.remote_address_group_id) {
            (None, None, None) => Remote::Any,
            (None, Some(group), None) => Remote::Group(group.clone()),
            (Some(prefix), None, None) => match prefix.parse::<IpNet>().ok()? {
                net if IpFamily::of(&net) != family => return None,
                net if net.prefix_len() == 0 => Remote::Any,
                net => Remote::Net(net.trunc()),
            },
            _ => return None,
        };
        let range = match (self.port_range_min, self.port_range_max) {
            (None, None) => None,
            (first, last) => Some((u16::try_from(first?).ok()?, u16::try_from(last?).ok()?)),
        };
        let ports = match &self.protocol {
            None if range.is_none() => None,
            protocol => Some(ProtocolPorts { protocol: value(&PROTOCOLS, protocol.as_deref()?)?, range }),
        };
        Some(Rule { direction, family, ports, remote })
    }
}

/// Returns the body of a request that adds `rule` to a group of the project.
pub(super) fn new_rule(group: &SecurityGroupId, project: &ProjectId, rule: &Rule) -> Value {
    let (net, remote_group) = match &rule.remote {
        Remote::Any => (None, None),
        Remote::Net(net) => (Some(net), None),
        Remote::Group(group) => (None, Some(group)),
    };
    let range = rule.ports.and_then(|ports| ports.range);
    without_nulls(json!({
        "security_group_id": group,
        "project_id": project,
        "direction": name(&DIRECTIONS, &rule.direction),
        "ethertype": name(&FAMILIES, &rule.family),
        "protocol": rule.ports.and_then(|ports| name(&PROTOCOLS, &ports.protocol)),
        "port_range_min": range.map(|(first, _)| first),
        "port_range_max": range.map(|(_, last)| last),
        "remote_ip_prefix": net,
        "remote_group_id": remote_group,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(rule: &Value) -> Option<SecurityRule<SecurityGroupId>> {
        let mut whole = json!({ "id": "r1", "direction": "ingress", "ethertype": "IPv4", "protocol": null });
        whole.as_object_mut().unwrap().extend(rule.as_object().unwrap().clone());
        serde_json::from_value::<RuleBody>(whole).unwrap().existing().rule
    }

    fn rule(ports: Option<ProtocolPorts>, remote: Remote<SecurityGroupId>) -> SecurityRule<SecurityGroupId> {
        SecurityRule { direction: Direction::Ingress, family: IpFamily::V4, ports, remote }
    }

    #[test]
    fn a_rule_is_read_as_it_is_written() {
        let (group, project) = ("g1".into(), "p1".into());
        let web = Some(ProtocolPorts { protocol: Protocol::Sctp, range: Some((80, 90)) });
        let udp = Some(ProtocolPorts { protocol: Protocol::Udp, range: None });
        let net = Remote::Net("10.0.0.0/8".parse().unwrap());
        for rule in [rule(None, Remote::Any), rule(web, net), rule(udp, Remote::Group("g2".into()))] {
            let written = new_rule(&group, &project, &rule);
            assert_eq!(parsed(&written), Some(rule), "{written}");
        }
    }

    #[test]
    fn all_addresses_are_anybody_and_what_we_never_ask_for_is_no_rule_of_ours() {
        assert_eq!(parsed(&json!({ "remote_ip_prefix": "0.0.0.0/0" })), Some(rule(None, Remote::Any)));
        assert_eq!(parsed(&json!({ "protocol": "6" })).unwrap().ports.unwrap().protocol, Protocol::Tcp);
        for odd in [
            json!({ "protocol": "icmp" }),
            json!({ "ethertype": "IPv6", "remote_ip_prefix": "10.0.0.0/8" }),
            json!({ "remote_address_group_id": "a1" }),
            json!({ "protocol": "tcp", "port_range_min": 80 }),
            json!({ "port_range_min": 1, "port_range_max": 2 }),
            json!({ "direction": "both" }),
        ] {
            assert_eq!(parsed(&odd), None, "{odd}");
        }
    }
}
