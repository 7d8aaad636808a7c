//! Security groups: allow-lists that guard VIFs.

use ipnet::IpNet;

use crate::id::{GroupName, SecurityGroupId, SecurityRuleId, VifId};
use crate::load_balancer::Protocol;
use crate::owner::Owner;

/// A security group of this cluster, as it is in the other world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecurityGroup {
    /// The id.
    pub id: SecurityGroupId,
    /// What it is to this cluster; it is a part of its mark.
    pub name: GroupName,
    /// The object for which it was made first; none for what is made for the whole cluster.
    pub owner: Option<Owner>,
    /// Its rules.
    pub rules: Vec<HeldRule>,
}

/// A rule that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldRule {
    /// The id.
    pub id: SecurityRuleId,
    /// What it allows; none when it is of a form that no cluster of ours asks for.
    pub rule: Option<SecurityRule<SecurityGroupId>>,
}

/// One thing that a group allows. Answers to what is allowed are always allowed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SecurityRule<G> {
    /// Whether it is about what comes to the VIF or what leaves it.
    pub direction: Direction,
    /// Which packets it is about.
    pub family: Family,
    /// To which ports; none for everything, whatever its protocol.
    pub ports: Option<Ports>,
    /// From or to whom.
    pub remote: Remote<G>,
}

/// As seen from the VIF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// To the VIF.
    Ingress,
    /// From the VIF.
    Egress,
}

/// The version of the Internet protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// That of an address or a network.
    pub fn of(net: &IpNet) -> Self {
        match net {
            IpNet::V4(_) => Self::V4,
            IpNet::V6(_) => Self::V6,
        }
    }
}

/// Ports of one protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ports {
    /// The protocol.
    pub protocol: Protocol,
    /// The first and the last port; none for all of them.
    pub range: Option<(u16, u16)>,
}

/// The other end.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Remote<G> {
    /// Anybody.
    Any,
    /// Who has an address of this network, which is not that of all addresses.
    Net(IpNet),
    /// The VIFs that this group guards.
    Group(G),
}

impl<G> SecurityRule<G> {
    /// The same rule about another name of the same group; none when `name` does not know it.
    pub fn naming<H>(&self, name: impl FnOnce(&G) -> Option<H>) -> Option<SecurityRule<H>> {
        let remote = match &self.remote {
            Remote::Any => Remote::Any,
            Remote::Net(net) => Remote::Net(*net),
            Remote::Group(group) => Remote::Group(name(group)?),
        };
        Some(SecurityRule { direction: self.direction, family: self.family, ports: self.ports, remote })
    }
}

/// What is to be changed about the rules of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleChange {
    /// The rules that go.
    pub remove: Vec<SecurityRuleId>,
    /// The rules that come.
    pub add: Vec<SecurityRule<SecurityGroupId>>,
}

impl RuleChange {
    /// What leads from the rules that a group has to those that it ought to have.
    pub fn between(held: &[HeldRule], wanted: &[SecurityRule<SecurityGroupId>]) -> Self {
        let mut missing: std::collections::BTreeSet<_> = wanted.iter().collect();
        // Of two that say the same, one stays.
        let surplus = held.iter().filter(|held| held.rule.as_ref().is_none_or(|rule| !missing.remove(rule)));
        let remove = surplus.map(|held| held.id.clone()).collect();
        Self { remove, add: missing.into_iter().cloned().collect() }
    }

    /// Whether there is nothing to change.
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.add.is_empty()
    }
}

/// A VIF and what guards it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guarded {
    /// The VIF.
    pub vif: VifId,
    /// Its groups, sorted.
    pub groups: Vec<SecurityGroupId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(net: &str) -> SecurityRule<SecurityGroupId> {
        let net: IpNet = net.parse().unwrap();
        SecurityRule {
            direction: Direction::Ingress,
            family: Family::of(&net),
            ports: None,
            remote: Remote::Net(net),
        }
    }

    fn held(id: &str, rule: Option<SecurityRule<SecurityGroupId>>) -> HeldRule {
        HeldRule { id: id.into(), rule }
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
