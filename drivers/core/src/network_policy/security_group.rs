//! Security groups: lists of the traffic that is allowed from and to VIFs.

use ipnet::IpNet;

use crate::id::{GroupName, Owner, SecurityGroupId, SecurityRuleId, VifId};
use crate::load_balancer::Protocol;

/// A security group that carries this cluster's ownership mark, in its current state in the cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecurityGroup {
    /// The id of the group in the cloud.
    pub id: SecurityGroupId,
    /// The name of the group within this cluster, which stands for its purpose. It is a part of the ownership mark.
    pub name: GroupName,
    /// The object for which the group was first created; `None` for a group of the whole cluster.
    pub owner: Option<Owner>,
    /// The rules of the group. A packet is allowed if any of them allows it.
    pub rules: Vec<ExistingRule>,
}

/// A rule of a security group, as it exists in the cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExistingRule {
    /// The id of the rule in the cloud.
    pub id: SecurityRuleId,
    /// The traffic that the rule allows; `None` for a rule that [`SecurityRule`] cannot express. This program never creates such
    /// a rule.
    pub rule: Option<SecurityRule<SecurityGroupId>>,
}

/// A kind of traffic that a security group allows. Response packets of allowed connections are always allowed. `G` is the type that
/// refers to other security groups: [`SecurityGroupId`] for groups that exist.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SecurityRule<G> {
    /// The direction of the traffic, as seen from the VIF.
    pub direction: Direction,
    /// The IP version of the traffic; each version needs a rule of its own.
    pub family: IpFamily,
    /// The protocol and ports; `None` for all traffic of any protocol.
    pub ports: Option<ProtocolPorts>,
    /// The source of ingress traffic, or the destination of egress traffic.
    pub remote: Remote<G>,
}

/// The direction of traffic, as seen from the VIF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// To the VIF.
    Ingress,
    /// From the VIF.
    Egress,
}

/// The version of the Internet protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IpFamily {
    /// IP version 4.
    V4,
    /// IP version 6.
    V6,
}

impl IpFamily {
    /// Both IP versions, for loops over them.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// Returns the IP version of the addresses of `net`.
    pub fn of(net: &IpNet) -> Self {
        match net {
            IpNet::V4(_) => Self::V4,
            IpNet::V6(_) => Self::V6,
        }
    }
}

/// A transport protocol, with a range of its ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProtocolPorts {
    /// The transport protocol.
    pub protocol: Protocol,
    /// The first and the last port of the range; `None` for all ports.
    pub range: Option<(u16, u16)>,
}

/// The other end of a connection: the source of ingress traffic, or the destination of egress traffic.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Remote<G> {
    /// Any address of the rule's IP version.
    Any,
    /// The addresses of this network. The network of all addresses (`/0`) is [`Any`](Self::Any) instead.
    Net(IpNet),
    /// The VIFs that have this security group.
    Group(G),
}

impl<G> SecurityRule<G> {
    /// Converts a rule that refers to groups by `G` to one that refers to them by `H`, for example from names
    /// to ids. Returns `None` if the rule refers to a group for which `name` returns `None`.
    pub fn map_group<H>(&self, name: impl FnOnce(&G) -> Option<H>) -> Option<SecurityRule<H>> {
        let remote = match &self.remote {
            Remote::Any => Remote::Any,
            Remote::Net(net) => Remote::Net(*net),
            Remote::Group(group) => Remote::Group(name(group)?),
        };
        Some(SecurityRule { direction: self.direction, family: self.family, ports: self.ports, remote })
    }
}

/// A change of the rules of a security group: the difference between its existing and its wanted rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleChange {
    /// The rules to remove.
    pub remove: Vec<SecurityRuleId>,
    /// The rules to add.
    pub add: Vec<SecurityRule<SecurityGroupId>>,
}

impl RuleChange {
    /// Computes the change from the existing rules to the wanted rules. It removes duplicates, and existing rules that
    /// [`SecurityRule`] cannot express.
    pub fn between(held: &[ExistingRule], wanted: &[SecurityRule<SecurityGroupId>]) -> Self {
        let mut missing: std::collections::BTreeSet<_> = wanted.iter().collect();
        // Of two that say the same, one stays.
        let surplus = held.iter().filter(|held| held.rule.as_ref().is_none_or(|rule| !missing.remove(rule)));
        let remove = surplus.map(|held| held.id.clone()).collect();
        Self { remove, add: missing.into_iter().cloned().collect() }
    }

    /// Returns `true` if there is nothing to change.
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.add.is_empty()
    }
}

/// The security groups that the cloud applies to one VIF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VifSecurityGroups {
    /// The id of the VIF.
    pub vif: VifId,
    /// The ids of its security groups, sorted.
    pub groups: Vec<SecurityGroupId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(net: &str) -> SecurityRule<SecurityGroupId> {
        let net: IpNet = net.parse().unwrap();
        SecurityRule {
            direction: Direction::Ingress,
            family: IpFamily::of(&net),
            ports: None,
            remote: Remote::Net(net),
        }
    }

    fn held(id: &str, rule: Option<SecurityRule<SecurityGroupId>>) -> ExistingRule {
        ExistingRule { id: id.into(), rule }
    }

    #[test]
    fn of_the_rules_only_those_that_differ_change() {
        let (a, b, c) = (rule("10.0.0.0/8"), rule("fd00::/8"), rule("192.0.2.0/24"));
        let before = [held("1", Some(a.clone())), held("2", Some(b.clone())), held("3", None)];
        let change = RuleChange::between(&before, &[b.clone(), c.clone(), c.clone()]);
        assert_eq!(change, RuleChange { remove: vec!["1".into(), "3".into()], add: vec![c] });
        assert!(RuleChange::between(&before[..2], &[a.clone(), b]).is_empty());
        let twice = RuleChange::between(&[held("1", Some(a.clone())), held("2", Some(a.clone()))], &[a]);
        assert_eq!(twice.remove, ["2".into()]);
    }
}
