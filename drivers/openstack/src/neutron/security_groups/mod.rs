//! The driver `default` of network policies: security groups of one project, found by their descriptions.

mod mark;
mod wire;

use std::collections::HashSet;

use async_trait::async_trait;
use dashmap::DashSet;
use serde_json::json;
use staffetta_driver::{
    ClusterId, DriverError, GroupName, Guarded, HeldRule, NetworkPolicyDriver, Owner, ProjectId, Reason,
    RuleChange, SecurityGroup, SecurityGroupId, SecurityRule, VifId,
};
use tracing::warn;

use self::mark::Mark;
use self::wire::{GroupTold, NewRule, RuleTold};
use super::api::Neutron;
use super::mark::{DEVICE_OWNER, KURYR_OWNER, SUBPORT_OWNER};
use crate::cloud::{Cloud, Service, well_formed};
use crate::error::{OpenStackError, existing};
use crate::mark::cluster_tag;

/// How many rules are made in one call. Neutron needs some tens of milliseconds for each, and makes all of them or none.
const TOGETHER: usize = 100;

const CHANGE: &str = "change the rules of a security group";

/// The driver `default` of network policies.
#[derive(Debug)]
pub struct NeutronSecurityGroups {
    network: Service,
    neutron: Neutron,
    cluster: ClusterId,
    project: ProjectId,
    /// The ports of which this process saw that they may be guarded: the mark of one never changes.
    ours: DashSet<VifId>,
}

impl NeutronSecurityGroups {
    /// Makes groups in a project of `cloud`, with the mark of `cluster`. Only ports of that project can have them.
    pub fn new(cloud: &Cloud, cluster: ClusterId, project: ProjectId) -> Self {
        Self {
            network: cloud.network(),
            neutron: Neutron::new(cloud),
            cluster,
            project,
            ours: DashSet::new(),
        }
    }

    /// Whether policies may guard a port: whatever an annotation names, only one with the mark of this cluster, or one of the
    /// project that Kuryr made for a pod. Only one that this process never saw is looked at.
    async fn is_ours(&self, vif: &VifId) -> Result<bool, OpenStackError> {
        // What an annotation calls an id may be anything.
        if self.ours.contains(vif) || !well_formed(vif.as_str()) {
            return Ok(self.ours.contains(vif));
        }
        let Some(port) = self.neutron.port("read whose a port is", vif).await? else { return Ok(false) };
        let ours = match port.mark() {
            Some(mark) => mark.cluster == self.cluster,
            None => port.device_owner == KURYR_OWNER && port.project_id == self.project,
        };
        if ours {
            self.ours.insert(vif.clone());
        } else {
            warn!(port = %vif, device_owner = port.device_owner, "a port that a pod names is not this cluster's, and no policy guards it");
        }
        Ok(ours)
    }

    fn group(&self, told: GroupTold) -> Option<SecurityGroup> {
        let Mark { name, owner, .. } = Mark::read(&told.description, &self.cluster)?;
        let rules = told.security_group_rules.into_iter().map(RuleTold::held).collect();
        Some(SecurityGroup { id: told.id, name, owner, rules })
    }

    async fn add(
        &self,
        group: &SecurityGroupId,
        rules: &[SecurityRule<SecurityGroupId>],
    ) -> Result<Vec<HeldRule>, OpenStackError> {
        let new: Vec<_> = rules.iter().map(|rule| NewRule::of(group, &self.project, rule)).collect();
        let body = json!({ "security_group_rules": new });
        let call = self.network.post(CHANGE, "security-group-rules").json(&body).things(rules.len());
        let made: Vec<RuleTold> = call.answer_in("security_group_rules").await?;
        Ok(made.into_iter().map(RuleTold::held).collect())
    }

    /// Adds those of the rules that are not there yet. Neutron refuses all of them when it has one.
    async fn add_missing(
        &self,
        group: &SecurityGroupId,
        rules: &[SecurityRule<SecurityGroupId>],
    ) -> Result<Vec<HeldRule>, OpenStackError> {
        match self.add(group, rules).await {
            Err(error) if error.is("SecurityGroupRuleExists") => {
                let path = format!("security-groups/{group}");
                let call = self.network.get("read the rules of a security group", path);
                let told: GroupTold =
                    call.fields(&["id", "security_group_rules"]).answer_in("security_group").await?;
                let held = told.security_group_rules.into_iter().map(RuleTold::held);
                let mut there: Vec<_> =
                    held.filter(|held| held.rule.as_ref().is_some_and(|rule| rules.contains(rule))).collect();
                let missing = |rule: &&SecurityRule<SecurityGroupId>| {
                    !there.iter().any(|held| held.rule.as_ref() == Some(*rule))
                };
                let missing: Vec<_> = rules.iter().filter(missing).cloned().collect();
                if missing.len() == rules.len() {
                    return Err(error);
                }
                if !missing.is_empty() {
                    there.extend(self.add(group, &missing).await?);
                }
                Ok(there)
            }
            result => result,
        }
    }
}

#[async_trait]
impl NetworkPolicyDriver for NeutronSecurityGroups {
    async fn groups(&self) -> Result<Vec<SecurityGroup>, DriverError> {
        let call = self.network.get("list the security groups of this cluster", "security-groups");
        let call = call.query("project_id", self.project.as_str());
        let call = call.fields(&["id", "description", "security_group_rules"]);
        let told: Vec<GroupTold> = call.list("security_groups").await?;
        Ok(told.into_iter().filter_map(|told| self.group(told)).collect())
    }

    async fn make_group(
        &self,
        name: &GroupName,
        owner: Option<&Owner>,
    ) -> Result<SecurityGroup, DriverError> {
        let mark = Mark { cluster: self.cluster.clone(), name: name.clone(), owner: owner.cloned() };
        let body = json!({ "security_group": {
            "name": mark.title(),
            "description": mark.description(),
            "project_id": self.project,
        } });
        let call = self.network.post("make a security group", "security-groups").json(&body);
        let told: GroupTold = call.answer_in("security_group").await?;
        let rules = told.security_group_rules.into_iter().map(RuleTold::held).collect();
        Ok(SecurityGroup { id: told.id, name: name.clone(), owner: owner.cloned(), rules })
    }

    async fn change_rules(
        &self,
        group: &SecurityGroupId,
        change: &RuleChange,
    ) -> Result<Vec<HeldRule>, DriverError> {
        for rule in &change.remove {
            let path = format!("security-group-rules/{rule}");
            existing(self.network.delete(CHANGE, path).done().await)?;
        }
        let mut added = Vec::with_capacity(change.add.len());
        for rules in change.add.chunks(TOGETHER) {
            added.extend(self.add_missing(group, rules).await?);
        }
        Ok(added)
    }

    async fn remove_group(&self, group: &SecurityGroupId) -> Result<(), DriverError> {
        let call = self.network.delete("remove a security group", format!("security-groups/{group}"));
        Ok(existing(call.done().await).map(drop)?)
    }

    async fn guards(&self) -> Result<Vec<Guarded>, DriverError> {
        let filter = if self.neutron.tags_new_ports().await? {
            vec![("tags", cluster_tag(&self.cluster))]
        } else {
            [DEVICE_OWNER, SUBPORT_OWNER].map(|owner| ("device_owner", owner.to_owned())).to_vec()
        };
        let fields = ["id", "security_groups", "description"];
        let ports =
            self.neutron.ports("list what guards the ports of this cluster", &filter, &fields).await?;
        let ours = |port: &super::wire::Port| port.mark().is_some_and(|mark| mark.cluster == self.cluster);
        let guarded = ports.into_iter().filter(ours).map(|port| {
            let mut groups = port.security_groups;
            groups.sort();
            Guarded { vif: port.id, groups }
        });
        let guarded: Vec<_> = guarded.collect();
        // What is gone need not be remembered; what was made meanwhile is looked at again.
        let listed: HashSet<&VifId> = guarded.iter().map(|guarded| &guarded.vif).collect();
        self.ours.retain(|vif| listed.contains(vif));
        for vif in listed {
            self.ours.insert(vif.clone());
        }
        Ok(guarded)
    }

    async fn guard(&self, vif: &VifId, groups: &[SecurityGroupId]) -> Result<(), DriverError> {
        const STEP: &str = "put security groups in front of a port";
        if !self.is_ours(vif).await? {
            return Err(
                DriverError::new(Reason::NotFound, STEP).detail("there is no such port of this cluster")
            );
        }
        let body = json!({ "port": { "security_groups": groups } });
        match self.network.put(STEP, format!("ports/{vif}")).json(&body).done().await {
            // The port is there, and something else is not.
            Err(error) if error.is("SecurityGroupNotFound") => {
                Err(DriverError::new(Reason::Conflict, STEP).detail(error.problem().to_string()))
            }
            result => Ok(result?),
        }
    }
}
