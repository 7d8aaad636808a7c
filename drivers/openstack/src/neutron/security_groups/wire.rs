//! Security groups and their rules, as Neutron writes and reads them. The fields are those of its API reference.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use staffetta_driver::{
    Direction, Family, HeldRule, Ports, ProjectId, Protocol, Remote, SecurityGroupId, SecurityRule,
    SecurityRuleId,
};

/// A security group as it is read.
#[derive(Debug, Deserialize)]
pub(super) struct GroupTold {
    pub(super) id: SecurityGroupId,
    #[serde(default)]
    pub(super) description: String,
    #[serde(default)]
    pub(super) security_group_rules: Vec<RuleTold>,
}

/// A rule as it is read.
#[derive(Debug, Deserialize)]
pub(super) struct RuleTold {
    id: SecurityRuleId,
    direction: String,
    #[serde(default)]
    ethertype: Option<String>,
    #[serde(default)]
    protocol: Option<String>,
    #[serde(default)]
    port_range_min: Option<i64>,
    #[serde(default)]
    port_range_max: Option<i64>,
    #[serde(default)]
    remote_ip_prefix: Option<String>,
    #[serde(default)]
    remote_group_id: Option<SecurityGroupId>,
    #[serde(default)]
    remote_address_group_id: Option<String>,
}

/// It is of a form that [`NewRule`] has not.
struct Odd;

impl RuleTold {
    pub(super) fn held(self) -> HeldRule {
        HeldRule { rule: self.rule(), id: self.id }
    }

    /// What it allows, if it is of a form that [`NewRule`] has too.
    fn rule(&self) -> Option<SecurityRule<SecurityGroupId>> {
        let direction = match self.direction.as_str() {
            "ingress" => Direction::Ingress,
            "egress" => Direction::Egress,
            _ => return None,
        };
        let family = match self.ethertype.as_deref() {
            Some("IPv4") => Family::V4,
            Some("IPv6") => Family::V6,
            _ => return None,
        };
        if self.remote_address_group_id.is_some() {
            return None;
        }
        let remote = match (&self.remote_ip_prefix, &self.remote_group_id) {
            (None, None) => Remote::Any,
            (None, Some(group)) => Remote::Group(group.clone()),
            (Some(prefix), None) => match prefix.parse::<IpNet>().ok()? {
                net if Family::of(&net) != family => return None,
                net if net.prefix_len() == 0 => Remote::Any,
                net => Remote::Net(net.trunc()),
            },
            (Some(_), Some(_)) => return None,
        };
        Some(SecurityRule { direction, family, ports: self.ports().ok()?, remote })
    }

    /// Its ports; none for all of all protocols.
    fn ports(&self) -> Result<Option<Ports>, Odd> {
        let port = |number: i64| u16::try_from(number).map_err(|_| Odd);
        let range = match (self.port_range_min, self.port_range_max) {
            (None, None) => None,
            (Some(first), Some(last)) => Some((port(first)?, port(last)?)),
            _ => return Err(Odd),
        };
        let protocol = match self.protocol.as_deref() {
            None if range.is_none() => return Ok(None),
            Some("tcp" | "6") => Protocol::Tcp,
            Some("udp" | "17") => Protocol::Udp,
            Some("sctp" | "132") => Protocol::Sctp,
            None | Some(_) => return Err(Odd),
        };
        Ok(Some(Ports { protocol, range }))
    }
}

/// A rule that is to be made.
#[derive(Debug, Serialize)]
pub(super) struct NewRule<'r> {
    security_group_id: &'r SecurityGroupId,
    project_id: &'r ProjectId,
    direction: &'static str,
    ethertype: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    port_range_min: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    port_range_max: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remote_ip_prefix: Option<IpNet>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remote_group_id: Option<&'r SecurityGroupId>,
}

impl<'r> NewRule<'r> {
    /// `rule` of a group of that project.
    pub(super) fn of(
        group: &'r SecurityGroupId,
        project: &'r ProjectId,
        rule: &'r SecurityRule<SecurityGroupId>,
    ) -> Self {
        let (remote_ip_prefix, remote_group_id) = match &rule.remote {
            Remote::Any => (None, None),
            Remote::Net(net) => (Some(*net), None),
            Remote::Group(group) => (None, Some(group)),
        };
        let range = rule.ports.and_then(|ports| ports.range);
        Self {
            security_group_id: group,
            project_id: project,
            direction: match rule.direction {
                Direction::Ingress => "ingress",
                Direction::Egress => "egress",
            },
            ethertype: match rule.family {
                Family::V4 => "IPv4",
                Family::V6 => "IPv6",
            },
            protocol: rule.ports.map(|ports| match ports.protocol {
                Protocol::Tcp => "tcp",
                Protocol::Udp => "udp",
                Protocol::Sctp => "sctp",
            }),
            port_range_min: range.map(|(first, _)| first),
            port_range_max: range.map(|(_, last)| last),
            remote_ip_prefix,
            remote_group_id,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn told(rule: &Value) -> Option<SecurityRule<SecurityGroupId>> {
        let mut whole = json!({ "id": "r1", "direction": "ingress", "ethertype": "IPv4", "protocol": null });
        whole.as_object_mut().unwrap().extend(rule.as_object().unwrap().clone());
        serde_json::from_value::<RuleTold>(whole).unwrap().held().rule
    }

    fn rule(ports: Option<Ports>, remote: Remote<SecurityGroupId>) -> SecurityRule<SecurityGroupId> {
        SecurityRule { direction: Direction::Ingress, family: Family::V4, ports, remote }
    }

    #[test]
    fn a_rule_is_read_as_it_is_written() {
        let (group, project) = ("g1".into(), "p1".into());
        let web = Some(Ports { protocol: Protocol::Sctp, range: Some((80, 90)) });
        let udp = Some(Ports { protocol: Protocol::Udp, range: None });
        let net = Remote::Net("10.0.0.0/8".parse().unwrap());
        for rule in [rule(None, Remote::Any), rule(web, net), rule(udp, Remote::Group("g2".into()))] {
            let written = serde_json::to_value(NewRule::of(&group, &project, &rule)).unwrap();
            assert_eq!(told(&written), Some(rule), "{written}");
        }
    }

    #[test]
    fn all_addresses_are_anybody_and_what_we_never_ask_for_is_no_rule_of_ours() {
        assert_eq!(told(&json!({ "remote_ip_prefix": "0.0.0.0/0" })), Some(rule(None, Remote::Any)));
        assert_eq!(told(&json!({ "protocol": "6" })).unwrap().ports.unwrap().protocol, Protocol::Tcp);
        for odd in [
            json!({ "protocol": "icmp" }),
            json!({ "ethertype": "IPv6", "remote_ip_prefix": "10.0.0.0/8" }),
            json!({ "remote_address_group_id": "a1" }),
            json!({ "protocol": "tcp", "port_range_min": 80 }),
            json!({ "port_range_min": 1, "port_range_max": 2 }),
            json!({ "direction": "both" }),
        ] {
            assert_eq!(told(&odd), None, "{odd}");
        }
    }
}
