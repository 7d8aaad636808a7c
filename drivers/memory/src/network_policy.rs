//! The driver `memory` of network policies.

use async_trait::async_trait;

use super::{MemoryDriver, MemoryNetwork};
use crate::driver::driver_calls;
use staffetta_driver::{
    DriverError, ExistingRule, GroupName, NetworkPolicyDriver, Owner, RuleChange, SecurityGroup,
    SecurityGroupId, VifId, VifSecurityGroups,
};

/// The driver `memory` of network policies, for one cluster on the security groups of a [`MemoryNetwork`].
pub type MemoryNetworkPolicyDriver = MemoryDriver<MemoryNetwork, NetworkPolicyMethod, NetworkPolicyCall>;

driver_calls! {
    /// A method of a driver of network policies, for planned faults.
    NetworkPolicyMethod,
    /// A logged call of a driver of network policies.
    NetworkPolicyCall,
    /// The method [`NetworkPolicyDriver::groups`].
    Groups;
    /// The method [`NetworkPolicyDriver::create_group`], for a group with this name.
    CreateGroup(GroupName);
    /// The method [`NetworkPolicyDriver::update_rules`], which removes and adds these numbers of rules of the group.
    UpdateRules(SecurityGroupId, usize, usize);
    /// The method [`NetworkPolicyDriver::delete_group`], for this group.
    DeleteGroup(SecurityGroupId);
    /// The method [`NetworkPolicyDriver::vif_groups`].
    VifGroups;
    /// The method [`NetworkPolicyDriver::set_vif_groups`], for this VIF.
    SetVifGroups(VifId);
}

#[async_trait]
impl NetworkPolicyDriver for MemoryNetworkPolicyDriver {
    async fn groups(&self) -> Result<Vec<SecurityGroup>, DriverError> {
        let work = || Ok(self.world.groups().all(Some(&self.cluster)));
        self.calls.call(NetworkPolicyCall::Groups, work).await
    }

    async fn create_group(
        &self,
        name: &GroupName,
        owner: Option<&Owner>,
    ) -> Result<SecurityGroup, DriverError> {
        let work = || self.world.groups().make(&self.cluster, name, owner);
        self.calls.call(NetworkPolicyCall::CreateGroup(name.clone()), work).await
    }

    async fn update_rules(
        &self,
        group: &SecurityGroupId,
        change: &RuleChange,
    ) -> Result<Vec<ExistingRule>, DriverError> {
        let (removed, added) = (change.remove.len(), change.add.len());
        let call = NetworkPolicyCall::UpdateRules(group.clone(), removed, added);
        let work = || self.world.groups().change(group, change);
        self.calls.call(call, work).await
    }

    async fn delete_group(&self, group: &SecurityGroupId) -> Result<(), DriverError> {
        let work = || {
            let used = self.world.ports().into_iter().flat_map(|port| port.security_groups).collect();
            self.world.groups().remove(group, &used)
        };
        self.calls.call(NetworkPolicyCall::DeleteGroup(group.clone()), work).await
    }

    async fn vif_groups(&self) -> Result<Vec<VifSecurityGroups>, DriverError> {
        let work = || {
            let ports = self.world.ports().into_iter();
            let ours = ports.filter(|port| port.cluster.as_ref() == Some(&self.cluster));
            let guarded = ours.map(|port| {
                let mut groups = port.security_groups;
                groups.sort();
                VifSecurityGroups { vif: port.vif.id, groups }
            });
            Ok(guarded.collect())
        };
        self.calls.call(NetworkPolicyCall::VifGroups, work).await
    }

    async fn set_vif_groups(&self, vif: &VifId, groups: &[SecurityGroupId]) -> Result<(), DriverError> {
        let call = NetworkPolicyCall::SetVifGroups(vif.clone());
        let work = || self.world.set_vif_groups(vif, groups);
        self.calls.call(call, work).await
    }

    async fn rule_quota(&self) -> Result<Option<usize>, DriverError> {
        Ok(self.world.groups().quota.1)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Fault, MemoryOptions};
    use staffetta_driver::{
        Direction, IpFamily, PodVifDriver, Protocol, ProtocolPorts, Reason, Remote, SecurityRule, VifRequest,
    };

    fn driver() -> MemoryNetworkPolicyDriver {
        let network = Arc::new(MemoryNetwork::new(MemoryOptions::default()));
        MemoryNetworkPolicyDriver::new(network, "east".into())
    }

    fn owner() -> Owner {
        Owner { namespace: "shop".into(), name: "p".into(), uid: "u1".into() }
    }

    fn rule(remote: Remote<SecurityGroupId>) -> SecurityRule<SecurityGroupId> {
        let ports = Some(ProtocolPorts { protocol: Protocol::Tcp, range: Some((80, 80)) });
        SecurityRule { direction: Direction::Ingress, family: IpFamily::V4, ports, remote }
    }

    #[tokio::test]
    async fn a_new_group_lets_everything_out_until_its_rules_are_changed() {
        let driver = driver();
        let group = driver.create_group(&"policy-u1".into(), Some(&owner())).await.unwrap();
        assert_eq!(group.rules.len(), 2);
        let wanted = [rule(Remote::Any)];
        let change = RuleChange::between(&group.rules, &wanted);
        let added = driver.update_rules(&group.id, &change).await.unwrap();
        assert_eq!(driver.groups().await.unwrap(), [SecurityGroup { rules: added.clone(), ..group.clone() }]);
        let again = RuleChange { add: wanted.into(), ..RuleChange::default() };
        assert_eq!(driver.update_rules(&group.id, &again).await.unwrap(), added, "it exists already");
        let west = MemoryNetworkPolicyDriver::new(Arc::clone(driver.network()), "west".into());
        assert!(west.groups().await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_group_goes_with_the_rules_that_name_it_when_it_guards_nobody() {
        let driver = driver();
        let peers = driver.create_group(&"peers".into(), Some(&owner())).await.unwrap();
        let own = driver.create_group(&"own".into(), Some(&owner())).await.unwrap();
        let change = RuleChange { add: vec![rule(Remote::Group(peers.id.clone()))], ..RuleChange::default() };
        driver.update_rules(&own.id, &change).await.unwrap();
        let network = driver.network();
        let request = VifRequest {
            owner: owner(),
            node_name: "n1".into(),
            host_ip: None,
            project: "memory".into(),
            subnets: network.options().pod_subnets.iter().map(|cidr| network.subnet(*cidr)).collect(),
            security_groups: vec![peers.id.clone()],
        };
        let vifs = super::super::MemoryVifDriver::new(Arc::clone(network), "east".into());
        let vif = vifs.request_vif(&request).await.unwrap();
        assert_eq!(driver.delete_group(&peers.id).await.unwrap_err().reason(), Reason::Conflict);
        driver.set_vif_groups(&vif.id, std::slice::from_ref(&own.id)).await.unwrap();
        let guarded = VifSecurityGroups { vif: vif.id, groups: vec![own.id.clone()] };
        assert_eq!(driver.vif_groups().await.unwrap(), [guarded]);
        driver.delete_group(&peers.id).await.unwrap();
        driver.delete_group(&peers.id).await.unwrap();
        let left = driver.groups().await.unwrap();
        assert_eq!((left.len(), left[0].rules.len()), (1, 2), "those that it had at first");
        let missing = driver.update_rules(&own.id, &change).await.unwrap_err();
        assert_eq!(missing.reason(), Reason::NotFound);
    }

    #[tokio::test]
    async fn quotas_bound_groups_and_rules_and_answers_get_lost() {
        let driver = driver();
        driver.network().set_security_group_quota(Some(1), Some(2));
        let lost = DriverError::new(Reason::Unavailable, "make a security group");
        driver.faults().inject(NetworkPolicyMethod::CreateGroup, 1, Fault::DoneThenFail(lost));
        assert!(driver.create_group(&"a".into(), None).await.unwrap_err().ambiguous());
        let group = driver.groups().await.unwrap().remove(0);
        assert_eq!(driver.create_group(&"b".into(), None).await.unwrap_err().reason(), Reason::Quota);
        let change = RuleChange { add: vec![rule(Remote::Any)], ..RuleChange::default() };
        assert_eq!(driver.update_rules(&group.id, &change).await.unwrap_err().reason(), Reason::Quota);
        let change = RuleChange { remove: vec![group.rules[0].id.clone()], ..change };
        for _ in 0..2 {
            assert_eq!(
                driver.update_rules(&group.id, &change).await.unwrap().len(),
                1,
                "no rule is counted twice"
            );
        }
    }
}
