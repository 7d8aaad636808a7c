//! The security groups of the simulated network.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use staffetta_driver::{
    ClusterId, Direction, DriverError, ExistingRule, GroupName, IpFamily, Owner, Reason, Remote, RuleChange,
    SecurityGroup, SecurityGroupId, SecurityRule, SecurityRuleId, is_kuryr_policy_group,
};

/// The creator of a security group.
#[derive(Debug)]
enum Creator {
    /// The cluster in the ownership mark of the group.
    Cluster(ClusterId),
    /// Another controller, which gave the group this description.
    Other(String),
}

/// The existing security groups, each with its creator.
#[derive(Debug, Default)]
pub(super) struct SecurityGroups {
    groups: BTreeMap<SecurityGroupId, (Creator, SecurityGroup)>,
    /// The maximum number of groups, and the maximum total number of their rules.
    pub(super) quota: (Option<usize>, Option<usize>),
    /// The number of ids of groups and rules that were used, which makes new ones unique.
    made: usize,
}

impl SecurityGroups {
    /// Returns the groups with the ownership mark of `cluster`, or all groups (`None`).
    pub(super) fn all(&self, cluster: Option<&ClusterId>) -> Vec<SecurityGroup> {
        let wanted = |creator: &Creator| {
            cluster.is_none_or(|cluster| matches!(creator, Creator::Cluster(marked) if marked == cluster))
        };
        self.groups.values().filter(|(creator, _)| wanted(creator)).map(|(_, group)| group.clone()).collect()
    }

    /// Creates a group with rules that allow all egress traffic, as Neutron does. If the quota is exceeded, the error is [`Reason::Quota`].
    pub(super) fn make(
        &mut self,
        cluster: &ClusterId,
        name: &GroupName,
        owner: Option<&Owner>,
    ) -> Result<SecurityGroup, DriverError> {
        if self.quota.0.is_some_and(|quota| self.groups.len() >= quota) {
            return Err(DriverError::new(Reason::Quota, "make a security group"));
        }
        let id: SecurityGroupId = format!("group-{}", self.number()).into();
        let out =
            |family| SecurityRule { direction: Direction::Egress, family, ports: None, remote: Remote::Any };
        let rules =
            IpFamily::ALL.map(|family| ExistingRule { id: self.rule_id(), rule: Some(out(family)) }).into();
        let group = SecurityGroup { id: id.clone(), name: name.clone(), owner: owner.cloned(), rules };
        self.groups.insert(id, (Creator::Cluster(cluster.clone()), group.clone()));
        Ok(group)
    }

    /// Adds a group without rules, as one of another controller, with this description.
    pub(super) fn insert_unmarked(&mut self, id: &SecurityGroupId, description: &str) {
        let name = GroupName::from(id.as_str());
        let group = SecurityGroup { id: id.clone(), name, owner: None, rules: Vec::new() };
        self.groups.insert(id.clone(), (Creator::Other(description.to_owned()), group));
    }

    /// Returns `true` if the group does not exist, or if it has no ownership mark and the description of Kuryr's group for `policy`.
    pub(super) fn is_kuryrs(&self, id: &SecurityGroupId, policy: &str) -> bool {
        self.groups.get(id).is_none_or(|(creator, _)| {
            matches!(creator, Creator::Other(description) if is_kuryr_policy_group(description, policy))
        })
    }

    /// Removes and adds rules of a group, and returns the added ones with their ids. A rule that exists already keeps its id. The error is
    /// [`Reason::NotFound`] if the group, or one that a new rule names, does not exist, and [`Reason::Quota`] if there are too many rules.
    /// Rules that were removed before the error stay removed.
    pub(super) fn change(
        &mut self,
        id: &SecurityGroupId,
        change: &RuleChange,
    ) -> Result<Vec<ExistingRule>, DriverError> {
        const STEP: &str = "change the rules of a security group";
        let not_found = |id: &SecurityGroupId| {
            DriverError::new(Reason::NotFound, STEP).detail(format!("security group {id}"))
        };
        let (_, group) = self.groups.get_mut(id).ok_or_else(|| not_found(id))?;
        let going: HashSet<&SecurityRuleId> = change.remove.iter().collect();
        group.rules.retain(|held| !going.contains(&held.id));
        let mut named = change.add.iter().filter_map(|rule| match &rule.remote {
            Remote::Group(id) => Some(id),
            _ => None,
        });
        if let Some(missing) = named.find(|id| !self.groups.contains_key(*id)) {
            return Err(not_found(missing));
        }
        let rules: usize = self.groups.values().map(|(_, group)| group.rules.len()).sum();
        let held: Vec<_> = self.groups[id].1.rules.iter().map(|held| held.rule.as_ref()).collect();
        let added = change.add.iter().filter(|rule| !held.contains(&Some(rule))).count();
        if self.quota.1.is_some_and(|quota| rules + added > quota) {
            return Err(DriverError::new(Reason::Quota, STEP));
        }
        let mut added = Vec::new();
        for rule in &change.add {
            let held = ExistingRule { id: self.rule_id(), rule: Some(rule.clone()) };
            let (_, group) = self.groups.get_mut(id).ok_or_else(|| not_found(id))?;
            let there = group.rules.iter().find(|known| known.rule.as_ref() == Some(rule)).cloned();
            if there.is_none() {
                group.rules.push(held.clone());
            }
            added.push(there.unwrap_or(held));
        }
        Ok(added)
    }

    /// Removes a group, and the rules of other groups that name it. If it is among `used`, the groups of ports, the error is
    /// [`Reason::Conflict`].
    pub(super) fn remove(
        &mut self,
        id: &SecurityGroupId,
        used: &BTreeSet<SecurityGroupId>,
    ) -> Result<(), DriverError> {
        if self.groups.contains_key(id) && used.contains(id) {
            let error = DriverError::new(Reason::Conflict, "remove a security group");
            return Err(error.detail(format!("security group {id} guards a port")));
        }
        self.groups.remove(id);
        let names = |held: &ExistingRule| matches!(&held.rule, Some(SecurityRule { remote: Remote::Group(named), .. }) if named == id);
        for (_, group) in self.groups.values_mut() {
            group.rules.retain(|held| !names(held));
        }
        Ok(())
    }

    /// Removes a rule of any group.
    pub(super) fn remove_rule(&mut self, id: &SecurityRuleId) {
        for (_, group) in self.groups.values_mut() {
            group.rules.retain(|held| held.id != *id);
        }
    }

    /// Returns the id of a new rule.
    fn rule_id(&mut self) -> SecurityRuleId {
        format!("rule-{}", self.number()).into()
    }

    /// Returns a number that was not returned before, for a new id.
    fn number(&mut self) -> usize {
        self.made += 1;
        self.made
    }
}
