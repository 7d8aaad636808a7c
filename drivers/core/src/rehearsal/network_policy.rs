//! Security groups that are planned.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use super::{PLANNED, PlannedCall, Planner, listed, planned};
use crate::error::DriverError;
use crate::id::{GroupName, SecurityGroupId, VifId};
use crate::network_policy_driver::NetworkPolicyDriver;
use crate::owner::Owner;
use crate::security_group::{Guarded, HeldRule, RuleChange, SecurityGroup};

/// A driver of network policies that reads and plans.
pub struct RehearsedNetworkPolicies {
    inner: Arc<dyn NetworkPolicyDriver>,
    planner: Planner,
    changes: Mutex<Changes>,
}

/// What would be by now.
#[derive(Default)]
struct Changes {
    /// The groups that would be there, and for whom.
    made: BTreeMap<SecurityGroupId, SecurityGroup>,
    gone: BTreeSet<SecurityGroupId>,
    guards: BTreeMap<VifId, Vec<SecurityGroupId>>,
    /// For whom the groups are of which somebody read.
    owners: BTreeMap<SecurityGroupId, Owner>,
}

impl RehearsedNetworkPolicies {
    /// Reads from `inner`, and tells `planner` of the rest.
    pub fn new(inner: Arc<dyn NetworkPolicyDriver>, planner: Planner) -> Self {
        Self { inner, planner, changes: Mutex::default() }
    }

    fn changes(&self) -> MutexGuard<'_, Changes> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call about a group, for its owner where there is one.
    fn about(&self, what: &'static str, group: &SecurityGroupId) -> PlannedCall {
        let call = PlannedCall::new(what).with("group", group);
        match self.changes().owners.get(group) {
            Some(owner) => call.of(owner),
            None => call,
        }
    }
}

#[async_trait]
impl NetworkPolicyDriver for RehearsedNetworkPolicies {
    async fn groups(&self) -> Result<Vec<SecurityGroup>, DriverError> {
        let read = self.inner.groups().await?;
        let mut changes = self.changes();
        for group in &read {
            if let Some(owner) = &group.owner {
                changes.owners.insert(group.id.clone(), owner.clone());
            }
        }
        let kept = read
            .into_iter()
            .filter(|group| !changes.gone.contains(&group.id) && !changes.made.contains_key(&group.id));
        Ok(kept.chain(changes.made.values().cloned()).collect())
    }

    async fn make_group(
        &self,
        name: &GroupName,
        owner: Option<&Owner>,
    ) -> Result<SecurityGroup, DriverError> {
        let call = PlannedCall::new("make a security group").with("name", name);
        (self.planner)(owner.into_iter().fold(call, PlannedCall::of));
        let id: SecurityGroupId = planned(name).into();
        let group =
            SecurityGroup { id: id.clone(), name: name.clone(), owner: owner.cloned(), rules: Vec::new() };
        let mut changes = self.changes();
        if let Some(owner) = owner {
            changes.owners.insert(id.clone(), owner.clone());
        }
        changes.made.insert(id, group.clone());
        Ok(group)
    }

    async fn change_rules(
        &self,
        group: &SecurityGroupId,
        change: &RuleChange,
    ) -> Result<Vec<HeldRule>, DriverError> {
        let call = self.about("change the rules of a security group", group);
        (self.planner)(call.with("added", change.add.len()).with("removed", change.remove.len()));
        let held = |(number, rule): (usize, &crate::SecurityRule<SecurityGroupId>)| HeldRule {
            id: format!("{PLANNED}{number}").into(),
            rule: Some(rule.clone()),
        };
        Ok(change.add.iter().enumerate().map(held).collect())
    }

    async fn remove_group(&self, group: &SecurityGroupId) -> Result<(), DriverError> {
        (self.planner)(self.about("remove a security group", group));
        let mut changes = self.changes();
        changes.made.remove(group);
        changes.gone.insert(group.clone());
        Ok(())
    }

    async fn guards(&self) -> Result<Vec<Guarded>, DriverError> {
        let mut read = self.inner.guards().await?;
        let changes = self.changes();
        for guarded in &mut read {
            if let Some(groups) = changes.guards.get(&guarded.vif) {
                guarded.groups.clone_from(groups);
            }
        }
        Ok(read)
    }

    async fn guard(&self, vif: &VifId, groups: &[SecurityGroupId]) -> Result<(), DriverError> {
        let call = PlannedCall::new("put security groups in front of a VIF").with("vif", vif);
        (self.planner)(call.with("groups", listed(groups)));
        self.changes().guards.insert(vif.clone(), groups.to_vec());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Notes, owner};
    use super::*;
    use crate::memory::{MemoryNetwork, MemoryNetworkPolicyDriver, MemoryOptions};

    #[tokio::test]
    async fn groups_are_written_down_and_not_made_and_reads_show_them() {
        let network = Arc::new(MemoryNetwork::new(MemoryOptions::default()));
        let real = Arc::new(MemoryNetworkPolicyDriver::new(network, "east".into()));
        let old = real.make_group(&"old".into(), Some(&owner("old"))).await.unwrap();
        let notes = Notes::default();
        let driver = RehearsedNetworkPolicies::new(Arc::clone(&real) as _, notes.planner());
        driver.groups().await.unwrap();
        let new = driver.make_group(&"new".into(), Some(&owner("new"))).await.unwrap();
        assert_eq!(new.id.as_str(), "planned-new");
        driver.change_rules(&new.id, &RuleChange::default()).await.unwrap();
        driver.remove_group(&old.id).await.unwrap();
        driver.guard(&"v1".into(), std::slice::from_ref(&new.id)).await.unwrap();
        let shown: Vec<_> = driver.groups().await.unwrap().into_iter().map(|group| group.name).collect();
        assert_eq!(shown, ["new".into()]);
        let expected = [
            "default/new: make a security group: name new",
            "default/new: change the rules of a security group: group planned-new; added 0; removed 0",
            "default/old: remove a security group: group group-1",
            "put security groups in front of a VIF: vif v1; groups planned-new",
        ];
        assert_eq!(notes.taken(), expected);
        assert_eq!(real.groups().await.unwrap(), [old]);
    }
}
