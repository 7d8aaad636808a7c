//! The driver of security groups of the simulated network.

use std::sync::Arc;

use async_trait::async_trait;

use super::{Faults, Ledger, MemoryNetwork};
use crate::error::DriverError;
use crate::id::{ClusterId, GroupName, SecurityGroupId, VifId};
use crate::network_policy_driver::NetworkPolicyDriver;
use crate::owner::Owner;
use crate::security_group::{Guarded, HeldRule, RuleChange, SecurityGroup};

/// The driver `memory` of network policies: one cluster's access to the security groups of a [`MemoryNetwork`].
pub struct MemoryNetworkPolicyDriver {
    network: Arc<MemoryNetwork>,
    cluster: ClusterId,
    faults: Faults<NetworkPolicyMethod>,
    ledger: Ledger<NetworkPolicyCall>,
}

/// A method of a driver of network policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NetworkPolicyMethod {
    /// [`NetworkPolicyDriver::groups`].
    Groups,
    /// [`NetworkPolicyDriver::make_group`].
    Make,
    /// [`NetworkPolicyDriver::change_rules`].
    Change,
    /// [`NetworkPolicyDriver::remove_group`].
    Remove,
    /// [`NetworkPolicyDriver::guards`].
    Guards,
    /// [`NetworkPolicyDriver::guard`].
    Guard,
}

/// A call of a driver of network policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkPolicyCall {
    /// The groups were listed.
    Groups,
    /// This group was made.
    Make(GroupName),
    /// Of this group so many rules were removed and so many added.
    Change(SecurityGroupId, usize, usize),
    /// This group was removed.
    Remove(SecurityGroupId),
    /// What guards VIFs was listed.
    Guards,
    /// This VIF got other groups.
    Guard(VifId),
}

impl MemoryNetworkPolicyDriver {
    /// Makes groups in `network` with the mark of `cluster`.
    pub fn new(network: Arc<MemoryNetwork>, cluster: ClusterId) -> Self {
        Self { network, cluster, faults: Faults::default(), ledger: Ledger::default() }
    }

    /// The network.
    pub fn network(&self) -> &Arc<MemoryNetwork> {
        &self.network
    }

    /// What goes wrong with the next calls.
    pub fn faults(&self) -> &Faults<NetworkPolicyMethod> {
        &self.faults
    }

    /// The calls so far, those that failed too.
    pub fn calls(&self) -> Vec<NetworkPolicyCall> {
        self.ledger.calls()
    }
}

#[async_trait]
impl NetworkPolicyDriver for MemoryNetworkPolicyDriver {
    async fn groups(&self) -> Result<Vec<SecurityGroup>, DriverError> {
        self.ledger.record(NetworkPolicyCall::Groups);
        let work = || Ok(self.network.groups().all(Some(&self.cluster)));
        self.faults.call(NetworkPolicyMethod::Groups, work).await
    }

    async fn make_group(
        &self,
        name: &GroupName,
        owner: Option<&Owner>,
    ) -> Result<SecurityGroup, DriverError> {
        self.ledger.record(NetworkPolicyCall::Make(name.clone()));
        let work = || self.network.groups().make(&self.cluster, name, owner);
        self.faults.call(NetworkPolicyMethod::Make, work).await
    }

    async fn change_rules(
        &self,
        group: &SecurityGroupId,
        change: &RuleChange,
    ) -> Result<Vec<HeldRule>, DriverError> {
        let (removed, added) = (change.remove.len(), change.add.len());
        self.ledger.record(NetworkPolicyCall::Change(group.clone(), removed, added));
        self.faults.call(NetworkPolicyMethod::Change, || self.network.groups().change(group, change)).await
    }

    async fn remove_group(&self, group: &SecurityGroupId) -> Result<(), DriverError> {
        self.ledger.record(NetworkPolicyCall::Remove(group.clone()));
        let work = || {
            let used = self.network.ports().into_iter().flat_map(|port| port.security_groups).collect();
            self.network.groups().remove(group, &used)
        };
        self.faults.call(NetworkPolicyMethod::Remove, work).await
    }

    async fn guards(&self) -> Result<Vec<Guarded>, DriverError> {
        self.ledger.record(NetworkPolicyCall::Guards);
        let work = || {
            let ports = self.network.ports().into_iter();
            let ours = ports.filter(|port| port.cluster.as_ref() == Some(&self.cluster));
            let guarded = ours.map(|port| {
                let mut groups = port.security_groups;
                groups.sort();
                Guarded { vif: port.vif.id, groups }
            });
            Ok(guarded.collect())
        };
        self.faults.call(NetworkPolicyMethod::Guards, work).await
    }

    async fn guard(&self, vif: &VifId, groups: &[SecurityGroupId]) -> Result<(), DriverError> {
        self.ledger.record(NetworkPolicyCall::Guard(vif.clone()));
        self.faults.call(NetworkPolicyMethod::Guard, || self.network.guard_port(vif, groups)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Reason;
    use crate::memory::{Fault, MemoryOptions};
    use crate::security_group::{Direction, Family, Ports, Remote, SecurityRule};
    use crate::{PodVifDriver, Protocol, VifRequest};

    fn driver() -> MemoryNetworkPolicyDriver {
        let network = Arc::new(MemoryNetwork::new(MemoryOptions::default()));
        MemoryNetworkPolicyDriver::new(network, "east".into())
    }

    fn owner() -> Owner {
        Owner { namespace: "shop".into(), name: "p".into(), uid: "u1".into() }
    }

    fn rule(remote: Remote<SecurityGroupId>) -> SecurityRule<SecurityGroupId> {
        let ports = Some(Ports { protocol: Protocol::Tcp, range: Some((80, 80)) });
        SecurityRule { direction: Direction::Ingress, family: Family::V4, ports, remote }
    }

    #[tokio::test]
    async fn a_new_group_lets_everything_out_until_its_rules_are_changed() {
        let driver = driver();
        let group = driver.make_group(&"policy-u1".into(), Some(&owner())).await.unwrap();
        assert_eq!(group.rules.len(), 2);
        let wanted = [rule(Remote::Any)];
        let change = RuleChange::between(&group.rules, &wanted);
        let added = driver.change_rules(&group.id, &change).await.unwrap();
        assert_eq!(driver.groups().await.unwrap(), [SecurityGroup { rules: added.clone(), ..group.clone() }]);
        let again = RuleChange { add: wanted.into(), ..RuleChange::default() };
        assert_eq!(driver.change_rules(&group.id, &again).await.unwrap(), added, "it exists already");
        let west = MemoryNetworkPolicyDriver::new(Arc::clone(driver.network()), "west".into());
        assert!(west.groups().await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_group_goes_with_the_rules_that_name_it_when_it_guards_nobody() {
        let driver = driver();
        let peers = driver.make_group(&"peers".into(), Some(&owner())).await.unwrap();
        let own = driver.make_group(&"own".into(), Some(&owner())).await.unwrap();
        let change = RuleChange { add: vec![rule(Remote::Group(peers.id.clone()))], ..RuleChange::default() };
        driver.change_rules(&own.id, &change).await.unwrap();
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
        assert_eq!(driver.remove_group(&peers.id).await.unwrap_err().reason(), Reason::Conflict);
        driver.guard(&vif.id, std::slice::from_ref(&own.id)).await.unwrap();
        let guarded = Guarded { vif: vif.id, groups: vec![own.id.clone()] };
        assert_eq!(driver.guards().await.unwrap(), [guarded]);
        driver.remove_group(&peers.id).await.unwrap();
        driver.remove_group(&peers.id).await.unwrap();
        let left = driver.groups().await.unwrap();
        assert_eq!((left.len(), left[0].rules.len()), (1, 2), "those that it had at first");
        let missing = driver.change_rules(&own.id, &change).await.unwrap_err();
        assert_eq!(missing.reason(), Reason::NotFound);
    }

    #[tokio::test]
    async fn quotas_bound_groups_and_rules_and_answers_get_lost() {
        let driver = driver();
        driver.network().set_security_group_quota(Some(1), Some(2));
        let lost = DriverError::new(Reason::Unavailable, "make a security group");
        driver.faults().inject(NetworkPolicyMethod::Make, 1, Fault::DoneThenFail(lost));
        assert!(driver.make_group(&"a".into(), None).await.unwrap_err().ambiguous());
        let group = driver.groups().await.unwrap().remove(0);
        assert_eq!(driver.make_group(&"b".into(), None).await.unwrap_err().reason(), Reason::Quota);
        let change = RuleChange { add: vec![rule(Remote::Any)], ..RuleChange::default() };
        assert_eq!(driver.change_rules(&group.id, &change).await.unwrap_err().reason(), Reason::Quota);
        let change = RuleChange { remove: vec![group.rules[0].id.clone()], ..change };
        assert_eq!(driver.change_rules(&group.id, &change).await.unwrap().len(), 1);
    }
}
