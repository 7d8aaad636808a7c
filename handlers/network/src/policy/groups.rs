//! Creates, updates and deletes security groups until they are the groups that the [`PolicyIndex`]
//! requires.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dashmap::DashMap;
use staffetta_driver::{
    ExistingRule, GroupName, NetworkPolicyDriver, Owner, Reason, Remote, RuleChange, SecurityGroup,
    SecurityGroupId, SecurityRule,
};
use tokio::sync::Mutex;
use tracing::{debug, warn};

use super::error::PolicyError;
use super::index::{DesiredGroup, PolicyIndex};
use crate::step_error::StepContext;

/// A security group that is no longer needed and could not be deleted.
pub(super) struct RemainingGroup {
    /// The id of the group; `None` if it is unknown whether the group exists.
    pub(super) id: Option<SecurityGroupId>,
    /// The policy that the group was created for; `None` for a group that exists regardless of
    /// policies.
    pub(super) owner: Option<Owner>,
    /// The cause of the failed deletion.
    pub(super) error: PolicyError,
}

impl RemainingGroup {
    /// Returns `true` if the group is assigned to a VIF.
    pub(super) fn is_in_use(&self) -> bool {
        matches!(&self.error, PolicyError::Step(error) if error.driver_reason() == Some(Reason::Conflict))
    }
}

/// The observed security groups of this cluster. Each group has a lock, so that two tasks never
/// change it concurrently.
pub(super) struct GroupStore {
    driver: Arc<dyn NetworkPolicyDriver>,
    index: Arc<PolicyIndex>,
    /// The observed state of each group, by name.
    groups: DashMap<GroupName, Arc<Mutex<GroupState>>>,
    /// The ids of the groups that exist, for rules that refer to them.
    ids: DashMap<GroupName, SecurityGroupId>,
    /// The last list of all groups. It is shared by all groups whose state is unknown.
    listing: Mutex<GroupListing>,
}

/// The observed state of a security group.
#[derive(Default)]
struct GroupState {
    /// The id of the group; `None` if the group does not exist.
    id: Option<SecurityGroupId>,
    /// The policy that the group was created for; `None` for a group that exists regardless of policies.
    owner: Option<Owner>,
    rules: Vec<ExistingRule>,
    /// `true` while the outcome of a driver call is unknown, so that the group must be listed
    /// again.
    is_dirty: bool,
    /// The logical time of the last observation of the group, from `PolicyIndex::next_tick`.
    tick: u64,
}

/// A list of all security groups of the cluster, by name. Groups with the same name are sorted by id.
#[derive(Clone, Default)]
struct GroupListing {
    /// The logical time at which the list was requested, from `PolicyIndex::next_tick`.
    tick: u64,
    groups: Arc<BTreeMap<GroupName, Vec<SecurityGroup>>>,
}

impl GroupStore {
    /// Creates an empty store of the groups that `index` requires and `driver` manages.
    pub(super) fn new(driver: Arc<dyn NetworkPolicyDriver>, index: Arc<PolicyIndex>) -> Self {
        let (groups, ids, listing) = (DashMap::new(), DashMap::new(), Mutex::default());
        Self { driver, index, groups, ids, listing }
    }

    /// Returns the cloud's quota of security group rules; `None` if it is not known or unlimited.
    pub(super) async fn rule_quota(&self) -> Result<Option<usize>, PolicyError> {
        Ok(self.driver.rule_quota().await.step("read the quota of security group rules")?)
    }

    /// Ensures that the desired group exists with exactly the desired rules, and makes it available to
    /// pods. If a rule refers to a group that does not exist, the other rules are still updated,
    /// and [`PolicyError::PeersMissing`] is returned.
    pub(super) async fn reconcile(&self, desired: &DesiredGroup) -> Result<(), PolicyError> {
        let DesiredGroup { name, owner, rules } = desired;
        let entry = self.entry(name);
        let mut group = entry.lock().await;
        let id = self.ensure(&mut group, name, owner.as_ref()).await?;
        let with_ids = rules.iter().filter_map(|rule| self.with_id(rule));
        let with_ids: Vec<_> = with_ids.collect();
        let change = RuleChange::between(&group.rules, &with_ids);
        self.update_rules(&mut group, name, &id, change).await?;
        if with_ids.len() < rules.len() {
            return Err(PolicyError::PeersMissing);
        }
        self.index.set_ready(name, &id);
        Ok(())
    }

    /// Ensures that the group `name` exists, and makes it available to pods. Rules that allow everything,
    /// and rules of a form that this program does not create, are removed; other rules are kept.
    pub(super) async fn ensure_exists(&self, name: &GroupName) -> Result<(), PolicyError> {
        let entry = self.entry(name);
        let mut group = entry.lock().await;
        let id = self.ensure(&mut group, name, None).await?;
        let surplus =
            group.rules.iter().filter(|existing| existing.rule.as_ref().is_none_or(allows_everything));
        let remove = surplus.map(|existing| existing.id.clone()).collect();
        self.update_rules(&mut group, name, &id, RuleChange { remove, add: Vec::new() }).await?;
        self.index.set_ready(name, &id);
        Ok(())
    }

    /// Applies a change of rules, unless it is empty, and stores the new rules in `group`.
    async fn update_rules(
        &self,
        group: &mut GroupState,
        name: &GroupName,
        id: &SecurityGroupId,
        change: RuleChange,
    ) -> Result<(), PolicyError> {
        if change.is_empty() {
            return Ok(());
        }
        // Marked before the call: if it is interrupted, the next attempt lists the groups.
        self.observed(group, true);
        let added = self.driver.update_rules(id, &change).await;
        let added = added.step(format!("change the rules of the security group `{name}`"))?;
        group.rules.retain(|existing| !change.remove.contains(&existing.id));
        group.rules.extend(added);
        self.observed(group, false);
        Ok(())
    }

    /// Deletes all groups that are no longer needed. A failure does not keep the other groups from
    /// being deleted. Returns the groups that could not be deleted.
    pub(super) async fn prune(&self) -> Vec<RemainingGroup> {
        let mut remaining = Vec::new();
        for name in self.unneeded() {
            let entry = self.entry(&name);
            let mut group = entry.lock().await;
            if self.needed().contains(&name) {
                continue;
            }
            if let Err(error) = self.delete(&mut group, &name).await {
                remaining.push(RemainingGroup { id: group.id.clone(), owner: group.owner.clone(), error });
            }
            drop(group);
            drop(entry);
            // Tasks that wait for the group hold a reference, too.
            let is_unused = |_: &GroupName, entry: &Arc<Mutex<GroupState>>| {
                Arc::strong_count(entry) == 1 && entry.try_lock().is_ok_and(|group| group.id.is_none())
            };
            self.groups.remove_if(&name, is_unused);
        }
        remaining
    }

    /// Deletes a group that is no longer needed. Does nothing if the group does not exist.
    async fn delete(&self, group: &mut GroupState, name: &GroupName) -> Result<(), PolicyError> {
        self.refresh_if_dirty(group, name).await?;
        let Some(id) = group.id.clone() else { return Ok(()) };
        self.index.clear_ready(name);
        let deleted = self.driver.delete_group(&id).await;
        deleted.step(format!("remove the security group `{name}`"))?;
        self.ids.remove(name);
        *group = GroupState::default();
        debug!(group = %id, %name, "deleted a security group that is not needed any more");
        Ok(())
    }

    /// Lists all groups and stores their state. Returns `true` if the stored state of any group has
    /// changed.
    pub(super) async fn refresh(&self) -> Result<bool, PolicyError> {
        let listing = self.list_since(self.index.next_tick()).await?;
        for name in listing.groups.keys() {
            self.groups.entry(name.clone()).or_default();
        }
        let entries: Vec<_> =
            self.groups.iter().map(|entry| (entry.key().clone(), Arc::clone(entry.value()))).collect();
        let mut changed = false;
        for (name, entry) in entries {
            let mut group = entry.lock().await;
            if group.tick < listing.tick {
                changed |= self.apply_listing(&mut group, &name, &listing).await;
            }
        }
        Ok(changed)
    }

    /// Returns the network policies whose security groups still exist but are no longer needed.
    pub(super) async fn unneeded_owners(&self) -> Vec<Owner> {
        let mut owners = Vec::new();
        for name in self.unneeded() {
            let entry = self.entry(&name);
            let group = entry.lock().await;
            owners.extend(group.owner.clone().filter(|_| group.id.is_some()));
        }
        owners
    }

    /// Returns the stored state of a group behind its lock. Adds an empty state if there is none.
    fn entry(&self, name: &GroupName) -> Arc<Mutex<GroupState>> {
        Arc::clone(&self.groups.entry(name.clone()).or_default())
    }

    /// Returns the names of all groups that policies need, and of the groups that exist regardless
    /// of policies.
    fn needed(&self) -> BTreeSet<GroupName> {
        let common = self.index.common_groups().into_iter().map(|group| group.name);
        self.index.group_names().into_iter().chain(common).collect()
    }

    /// Returns the names of the stored groups that are no longer needed.
    fn unneeded(&self) -> Vec<GroupName> {
        let needed = self.needed();
        self.groups.iter().map(|entry| entry.key().clone()).filter(|name| !needed.contains(name)).collect()
    }

    /// Creates the group if it does not exist, and returns its id.
    async fn ensure(
        &self,
        group: &mut GroupState,
        name: &GroupName,
        owner: Option<&Owner>,
    ) -> Result<SecurityGroupId, PolicyError> {
        self.refresh_if_dirty(group, name).await?;
        if let Some(id) = &group.id {
            return Ok(id.clone());
        }
        self.observed(group, true);
        let created = self.driver.create_group(name, owner).await;
        if let Err(error) = &created {
            if !error.ambiguous() {
                self.observed(group, false);
            }
            self.index.set_unavailable(name);
        }
        let created = created.step(format!("create the security group `{name}`"))?;
        self.observed(group, false);
        group.id = Some(created.id.clone());
        group.owner = created.owner;
        group.rules = created.rules;
        self.ids.insert(name.clone(), created.id.clone());
        Ok(created.id)
    }

    /// Sets the time of the group's observation to now. `is_dirty` is `true` while the outcome of a
    /// driver call is unknown.
    fn observed(&self, group: &mut GroupState, is_dirty: bool) {
        group.is_dirty = is_dirty;
        group.tick = self.index.next_tick();
    }

    /// Lists the groups and updates `group`, if the outcome of its last driver call is unknown.
    async fn refresh_if_dirty(&self, group: &mut GroupState, name: &GroupName) -> Result<(), PolicyError> {
        if group.is_dirty {
            let listing = self.list_since(group.tick).await?;
            self.apply_listing(group, name, &listing).await;
        }
        Ok(())
    }

    /// Returns the last list of all groups if it was requested at the logical time `tick` or later;
    /// otherwise lists the groups again.
    async fn list_since(&self, tick: u64) -> Result<GroupListing, PolicyError> {
        let mut listing = self.listing.lock().await;
        if listing.tick < tick {
            let tick = self.index.next_tick();
            let mut groups: BTreeMap<GroupName, Vec<SecurityGroup>> = BTreeMap::new();
            let listed = self.driver.groups().await;
            for group in listed.step("list the existing security groups")? {
                groups.entry(group.name.clone()).or_default().push(group);
            }
            for of_name in groups.values_mut() {
                of_name.sort_by(|a, b| a.id.cmp(&b.id));
            }
            *listing = GroupListing { tick, groups: Arc::new(groups) };
        }
        Ok(listing.clone())
    }

    /// Updates the state of a group from a list, and deletes duplicates: other groups with the same
    /// name. Returns `true` if the group's id or its rules have changed.
    async fn apply_listing(&self, group: &mut GroupState, name: &GroupName, listing: &GroupListing) -> bool {
        let listed = listing.groups.get(name).map(Vec::as_slice).unwrap_or_default();
        let same = listed.iter().find(|listed| Some(&listed.id) == group.id.as_ref());
        let kept = same.or(listed.first());
        for duplicate in listed.iter().filter(|listed| kept.is_some_and(|kept| kept.id != listed.id)) {
            if let Err(error) = self.driver.delete_group(&duplicate.id).await {
                warn!(group = %duplicate.id, %name, %error, "could not delete a duplicate security group yet");
            }
        }
        let changed = kept.map(|kept| &kept.id) != group.id.as_ref()
            || kept.is_some_and(|kept| rule_ids(&kept.rules) != rule_ids(&group.rules));
        *group = GroupState { tick: listing.tick, ..GroupState::default() };
        if let Some(kept) = kept {
            group.id = Some(kept.id.clone());
            group.owner.clone_from(&kept.owner);
            group.rules.clone_from(&kept.rules);
            self.ids.insert(name.clone(), kept.id.clone());
        } else {
            self.ids.remove(name);
        }
        if changed {
            // Ready again once its rules are reconciled.
            self.index.clear_ready(name);
        }
        changed
    }

    /// Returns `rule` with the name of its remote group, if it has one, replaced by the id of that
    /// group. Returns `None` if that group does not exist.
    fn with_id(&self, rule: &SecurityRule<GroupName>) -> Option<SecurityRule<SecurityGroupId>> {
        rule.map_group(|name| self.ids.get(name).map(|id| id.clone()))
    }
}

/// Returns `true` if the rule restricts neither ports nor remote addresses.
fn allows_everything(rule: &SecurityRule<SecurityGroupId>) -> bool {
    rule.ports.is_none() && rule.remote == Remote::Any
}

/// Returns the ids of rules as a set, so that their order does not matter in comparisons.
fn rule_ids(rules: &[ExistingRule]) -> BTreeSet<&staffetta_driver::SecurityRuleId> {
    rules.iter().map(|existing| &existing.id).collect()
}
