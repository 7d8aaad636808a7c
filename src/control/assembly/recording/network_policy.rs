//! Records calls to drivers of network policies.

use async_trait::async_trait;
use staffetta_driver::{
    DriverError, ExistingRule, GroupName, NetworkPolicyDriver, Owner, RuleChange, SecurityGroup,
    SecurityGroupId, VifId, VifSecurityGroups,
};

use super::{Recording, list, planned};

#[async_trait]
impl NetworkPolicyDriver for Recording<dyn NetworkPolicyDriver> {
    async fn groups(&self) -> Result<Vec<SecurityGroup>, DriverError> {
        self.driver.groups().await
    }

    async fn create_group(
        &self,
        name: &GroupName,
        owner: Option<&Owner>,
    ) -> Result<SecurityGroup, DriverError> {
        self.record(owner, self.call("create a security group").with("name", name));
        let (id, name) = (planned(name).into(), name.clone());
        Ok(SecurityGroup { id, name, owner: owner.cloned(), rules: Vec::new() })
    }

    async fn update_rules(
        &self,
        group: &SecurityGroupId,
        change: &RuleChange,
    ) -> Result<Vec<ExistingRule>, DriverError> {
        let call = self.call("change the rules of a security group").with("group", group);
        self.record(None, call.with("added", change.add.len()).with("removed", change.remove.len()));
        let added = change.add.iter().enumerate();
        let held =
            added.map(|(number, rule)| ExistingRule { id: planned(number).into(), rule: Some(rule.clone()) });
        Ok(held.collect())
    }

    async fn delete_group(&self, group: &SecurityGroupId) -> Result<(), DriverError> {
        self.record(None, self.call("remove a security group").with("group", group));
        Ok(())
    }

    async fn vif_groups(&self) -> Result<Vec<VifSecurityGroups>, DriverError> {
        self.driver.vif_groups().await
    }

    async fn set_vif_groups(&self, vif: &VifId, groups: &[SecurityGroupId]) -> Result<(), DriverError> {
        let call = self.call("set the security groups of a VIF").with("VIF", vif);
        self.record(None, call.with("groups", list(groups)));
        Ok(())
    }

    async fn rule_quota(&self) -> Result<Option<usize>, DriverError> {
        self.driver.rule_quota().await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use staffetta_memory::{MemoryNetwork, MemoryNetworkPolicyDriver, MemoryOptions};

    use super::super::testing::{Calls, owner};
    use super::*;

    #[tokio::test]
    async fn groups_are_recorded_and_not_made() {
        let network = Arc::new(MemoryNetwork::new(MemoryOptions::default()));
        let real = Arc::new(MemoryNetworkPolicyDriver::new(network, "east".into()));
        let old = real.create_group(&"old".into(), Some(&owner("old"))).await.unwrap();
        let calls = Calls::default();
        let driver = calls.record::<dyn NetworkPolicyDriver>(Arc::clone(&real) as _);
        let new = driver.create_group(&"new".into(), Some(&owner("new"))).await.unwrap();
        assert_eq!(new.id.as_str(), "planned-new");
        driver.update_rules(&new.id, &RuleChange::default()).await.unwrap();
        driver.delete_group(&old.id).await.unwrap();
        driver.set_vif_groups(&"v1".into(), std::slice::from_ref(&new.id)).await.unwrap();
        let expected = [
            "default/new: create a security group: name new",
            "change the rules of a security group: group planned-new; added 0; removed 0",
            "remove a security group: group group-1",
            "set the security groups of a VIF: VIF v1; groups planned-new",
        ];
        assert_eq!(calls.take(), expected);
        assert_eq!(real.groups().await.unwrap(), [old]);
    }
}
