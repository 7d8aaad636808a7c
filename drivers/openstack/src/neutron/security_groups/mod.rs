//! The driver `default` of network policies. It creates security groups in one project, and finds them by the ownership marks in their
//! descriptions.

mod wire;

use std::collections::HashSet;

use async_trait::async_trait;
use dashmap::DashSet;
use serde_json::{Value, json};
use staffetta_driver::{
    ClusterId, DriverError, ExistingRule, GroupName, NetworkPolicyDriver, Owner, ProjectId, Reason,
    RuleChange, SecurityGroup, SecurityGroupId, VifId, VifSecurityGroups,
};
use tracing::warn;

use self::wire::{Rule, RuleBody, SecurityGroupBody, new_rule};
use super::api::NeutronApi;
use super::ports::device_owner_filter;
use super::wire::{KURYR_OWNER, PortBody};
use crate::cloud::Cloud;
use crate::error::{DriverResult, Result, existing};
use crate::mark::{ResourceMark, cluster_tag};
use crate::text::{self, is_well_formed};

/// The maximum number of rules in one request. Neutron needs some tens of milliseconds for each rule, and creates all rules of a request or
/// none.
const MAX_RULES: usize = 100;

const UPDATE: &str = "update the rules of a security group";

/// The driver `default` of network policies, which applies them by security groups of Neutron.
#[derive(Debug)]
pub struct NeutronSecurityGroups {
    neutron: NeutronApi,
    cluster: ClusterId,
    project: ProjectId,
    /// The cached ids of ports that belong to this cluster. Their ownership marks never change.
    ours: DashSet<VifId>,
}

impl NeutronSecurityGroups {
    /// Creates the driver. It creates security groups with the ownership mark of `cluster` in one project. Only ports of that project can
    /// have these groups.
    pub fn new(cloud: &Cloud, cluster: ClusterId, project: ProjectId) -> Self {
        Self { neutron: NeutronApi::new(cloud.network()), cluster, project, ours: DashSet::new() }
    }

    /// Returns `true` if the port has the ownership mark of this cluster, or if Kuryr created it in the project of the driver. This check
    /// is necessary because an annotation may name any port. The port is read only if its id is not among the cached ones.
    async fn is_ours(&self, vif: &VifId) -> Result<bool> {
        if self.ours.contains(vif) || !is_well_formed(vif.as_str()) {
            return Ok(self.ours.contains(vif));
        }
        let port = self.neutron.port("read the owner of a port", vif).await?;
        let Some(port) = port else { return Ok(false) };
        let ours = match port.mark() {
            Some(mark) => mark.cluster == self.cluster && self.neutron.service.owns(&port.project_id),
            None => port.device_owner == KURYR_OWNER && port.project_id == self.project,
        };
        if ours {
            self.ours.insert(vif.clone());
        } else {
            warn!(port = %vif, device_owner = port.device_owner, "the port of a pod does not belong to this cluster; no policy applies to it");
        }
        Ok(ours)
    }

    /// Converts a security group in a response of Neutron, or returns `None` if its description is not the ownership mark of a group of
    /// this cluster.
    fn group(&self, body: SecurityGroupBody) -> Option<SecurityGroup> {
        let mark = ResourceMark::parse(&body.description).filter(|mark| mark.cluster == self.cluster)?;
        let rules = existing_rules(body.security_group_rules);
        Some(SecurityGroup { id: body.id, name: mark.group?, owner: mark.owner, rules })
    }

    /// Adds rules to a group by one request, all of them or none, and returns them with their ids.
    async fn add(&self, group: &SecurityGroupId, rules: &[Rule]) -> Result<Vec<ExistingRule>> {
        let new: Vec<_> = rules.iter().map(|rule| new_rule(group, &self.project, rule)).collect();
        let body = json!({ "security_group_rules": new });
        let call = self.neutron.service.post(UPDATE, "security-group-rules").json(&body).items(rules.len());
        Ok(existing_rules(call.json_member("security_group_rules").await?))
    }

    /// Adds those rules that do not exist yet, and returns all of them with their ids. Neutron rejects a request that contains an existing
    /// rule; in that case the group is read, and only the missing rules are added.
    async fn add_missing(&self, group: &SecurityGroupId, rules: &[Rule]) -> Result<Vec<ExistingRule>> {
        let error = match self.add(group, rules).await {
            Err(error) if error.is("SecurityGroupRuleExists") => error,
            result => return result,
        };
        let call = self
            .neutron
            .service
            .get("read the rules of a security group", format!("security-groups/{group}"));
        let call = call.fields("id security_group_rules");
        let body: SecurityGroupBody = call.json_member("security_group").await?;
        let mut found = existing_rules(body.security_group_rules);
        found.retain(|found| found.rule.as_ref().is_some_and(|rule| rules.contains(rule)));
        let is_missing = |rule: &&Rule| !found.iter().any(|found| found.rule.as_ref() == Some(*rule));
        let missing: Vec<_> = rules.iter().filter(is_missing).cloned().collect();
        if missing.len() == rules.len() {
            return Err(error);
        }
        if !missing.is_empty() {
            found.extend(self.add(group, &missing).await?);
        }
        Ok(found)
    }
}

#[async_trait]
impl NetworkPolicyDriver for NeutronSecurityGroups {
    async fn groups(&self) -> DriverResult<Vec<SecurityGroup>> {
        let call = self.neutron.service.get("list the security groups of this cluster", "security-groups");
        let call = call.query("project_id", self.project.as_str());
        let call = call.fields("id description security_group_rules");
        let bodies: Vec<SecurityGroupBody> = call.list("security_groups").await?;
        Ok(bodies.into_iter().filter_map(|body| self.group(body)).collect())
    }

    async fn create_group(&self, name: &GroupName, owner: Option<&Owner>) -> DriverResult<SecurityGroup> {
        let (group, owner) = (Some(name.clone()), owner.cloned());
        let title = match &owner {
            Some(Owner { namespace, name, .. }) => format!("{}/{namespace}/{name}", self.cluster),
            None => format!("{}/{name}", self.cluster),
        };
        let mark = ResourceMark { cluster: self.cluster.clone(), group, owner };
        let body = json!({ "security_group": {
            "name": text::name(&title),
            "description": mark.to_string(),
            "project_id": self.project,
        } });
        let call = self.neutron.service.post("create a security group", "security-groups").json(&body);
        let body: SecurityGroupBody = call.json_member("security_group").await?;
        let rules = existing_rules(body.security_group_rules);
        Ok(SecurityGroup { id: body.id, name: name.clone(), owner: mark.owner, rules })
    }

    async fn update_rules(
        &self,
        group: &SecurityGroupId,
        change: &RuleChange,
    ) -> DriverResult<Vec<ExistingRule>> {
        for rule in &change.remove {
            existing(
                self.neutron.service.delete(UPDATE, format!("security-group-rules/{rule}")).done().await,
            )?;
        }
        let mut added = Vec::with_capacity(change.add.len());
        for rules in change.add.chunks(MAX_RULES) {
            added.extend(self.add_missing(group, rules).await?);
        }
        Ok(added)
    }

    async fn delete_group(&self, group: &SecurityGroupId) -> DriverResult<()> {
        let call = self.neutron.service.delete("delete a security group", format!("security-groups/{group}"));
        Ok(existing(call.done().await).map(drop)?)
    }

    async fn vif_groups(&self) -> DriverResult<Vec<VifSecurityGroups>> {
        let filter = if self.neutron.tags_new_ports().await? {
            vec![("tags", cluster_tag(&self.cluster))]
        } else {
            device_owner_filter()
        };
        let fields = "id project_id security_groups description";
        let step = "list the security groups of ports";
        let ports = self.neutron.ports(step, &filter, fields).await?;
        let ours = |port: &PortBody| {
            port.mark_of(&self.cluster).is_some() && self.neutron.service.owns(&port.project_id)
        };
        let groups = ports.into_iter().filter(ours).map(|port| {
            let mut groups = port.security_groups;
            groups.sort();
            VifSecurityGroups { vif: port.id, groups }
        });
        let groups: Vec<_> = groups.collect();
        // Deleted ports are forgotten; ports that were created meanwhile are read again.
        let listed: HashSet<&VifId> = groups.iter().map(|groups| &groups.vif).collect();
        self.ours.retain(|vif| listed.contains(vif));
        for vif in listed {
            self.ours.insert(vif.clone());
        }
        Ok(groups)
    }

    async fn set_vif_groups(&self, vif: &VifId, groups: &[SecurityGroupId]) -> DriverResult<()> {
        const STEP: &str = "set the security groups of a port";
        if !self.is_ours(vif).await? {
            let detail = "there is no such port of this cluster";
            return Err(DriverError::new(Reason::NotFound, STEP).detail(detail));
        }
        let body = json!({ "port": { "security_groups": groups } });
        match self.neutron.service.put(STEP, format!("ports/{vif}")).json(&body).done().await {
            // A group does not exist, while the port does.
            Err(error) if error.is("SecurityGroupNotFound") => Err(DriverError::new(Reason::Conflict, STEP)
                .detail(error.rejection().map(ToString::to_string).unwrap_or_default())),
            result => Ok(result?),
        }
    }

    /// Returns the quota of security group rules of the driver's project, or `None` if there is no limit or staffetta's OpenStack user may
    /// not see it.
    async fn rule_quota(&self) -> DriverResult<Option<usize>> {
        let path = format!("quotas/{}", self.project);
        let call = self.neutron.service.get("read the quota of security group rules", path);
        match call.json_member::<Value>("quota").await {
            // The quota -1 means that there is no limit.
            Ok(quota) => Ok(quota["security_group_rule"].as_u64().and_then(|limit| limit.try_into().ok())),
            Err(error) if matches!(error.status(), Some(403 | 404)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Converts the security group rules in a response of Neutron.
fn existing_rules(bodies: Vec<RuleBody>) -> Vec<ExistingRule> {
    bodies.into_iter().map(RuleBody::existing).collect()
}
