//! Creates, updates and deletes security groups until they are the groups that the [`PolicyIndex`]
//! requires.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dashmap::DashMap;
use staffetta_driver::{
    GroupName, NetworkPolicyDriver, Owner, Reason, RuleChange, SecurityGroup, SecurityGroupId, SecurityRule,
};
use tokio::sync::Mutex;
use tracing::{debug, warn};

use super::error::PolicyError;
use super::index::{DesiredGroup, PolicyIndex};
use crate::step_error::StepContext;

/// A security group that is no longer needed and could not be deleted.
pub(super) struct RemainingGroup {
    /// The id of the security group.
    pub(super) id: SecurityGroupId,
    /// The policy that the group was created for; `None` for a group that exists regardless of
    /// policies.
    pub(super) owner: Option<Owner>,
    /// The cause of the failed deletion.
    pub(super) error: PolicyError,
}

impl RemainingGroup {
    /// Returns `true` if the deletion failed because the group is still assigned to a VIF.
    pub(super) fn is_in_use(&self) -> bool {
        matches!(&self.error, PolicyError::Step(error) if error.driver_reason() == Some(Reason::Conflict))
    }
}

/// The store of the observed security groups of this cluster, which also creates, changes and
/// deletes them. Each group has a lock, so that two tasks never change it concurrently.
pub(super) struct GroupStore {
    driver: Arc<dyn NetworkPolicyDriver>,
    index: Arc<PolicyIndex>,
    /// The observed state of each security group, by name.
    groups: DashMap<GroupName, Arc<Mutex<GroupState>>>,
    /// The ids of the existing security groups by name, for rules that refer to a group.
    ids: DashMap<GroupName, SecurityGroupId>,
    /// The last list of all security groups. One list serves all groups whose state is unknown.
    listing: Mutex<GroupListing>,
}

/// The observed state of a security group.
#[derive(Default)]
struct GroupState {
    /// The security group as last observed; `None` if it does not exist.
    existing: Option<SecurityGroup>,
    /// `true` while the outcome of a driver call is unknown, so that the group must be listed
    /// again.
    is_dirty: bool,
    /// The logical time, from `PolicyIndex::next_tick`, at which the group was last observed, or at which a
    /// later driver call for the group began. Lists that were requested earlier are ignored.
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
    /// Creates an empty store of the security groups that `index` requires and `driver` manages.
    pub(super) fn new(driver: Arc<dyn NetworkPolicyDriver>, index: Arc<PolicyIndex>) -> Self {
        let (groups, ids, listing) = (DashMap::new(), DashMap::new(), Mutex::default());
        Self { driver, index, groups, ids, listing }
    }

    /// Reads the cloud's quota of security group rules into the index, unless the configuration sets the maximum number of
    /// rules of a namespace.
    pub(super) async fn read_rule_quota(&self) -> Result<(), PolicyError> {
        if self.index.needs_rule_quota() {
            let quota = self.driver.rule_quota().await.step("read the quota of security group rules")?;
            self.index.set_rule_quota(quota);
        }
        Ok(())
    }

    /// Ensures that the desired group exists with exactly the desired rules, and makes it available to
    /// pods. If a rule refers to a group that does not exist, the other rules are still updated,
    /// and [`PolicyError::PeersMissing`] is returned.
    pub(super) async fn reconcile(&self, desired: &DesiredGroup) -> Result<(), PolicyError> {
        let DesiredGroup { name, owner, rules } = desired;
        let entry = self.entry(name);
        let mut state = entry.lock().await;
        let mut group = self.ensure(&mut state, name, owner.as_ref()).await?;
        let id = group.id.clone();
        let with_ids: Vec<_> = rules.iter().filter_map(|rule| self.with_id(rule)).collect();
        let change = RuleChange::between(&group.rules, &with_ids);
        if !change.is_empty() {
            self.mark_dirty(&mut state);
            let added = self.driver.update_rules(&id, &change).await;
            let added = added.step(format!("change the rules of the security group `{name}`"))?;
            group.rules.retain(|existing| !change.remove.contains(&existing.id));
            group.rules.extend(added);
            self.store(&mut state, name, Some(group), self.index.next_tick());
        }
        if with_ids.len() < rules.len() {
            return Err(PolicyError::PeersMissing);
        }
        self.index.set_ready(name, &id);
        Ok(())
    }

    /// Deletes all security groups that are no longer needed. A failure does not keep the other
    /// groups from being deleted. Returns the groups that could not be deleted.
    pub(super) async fn prune(&self) -> Vec<RemainingGroup> {
        let mut remaining = Vec::new();
        for name in self.unneeded() {
            let entry = self.entry(&name);
            let mut state = entry.lock().await;
            if self.needed().contains(&name) {
                continue;
            }
            if let Err(error) = self.delete(&mut state, &name).await
                && let Some(SecurityGroup { id, owner, .. }) = state.existing.clone()
            {
                remaining.push(RemainingGroup { id, owner, error });
            }
            drop(state);
            drop(entry);
            // Tasks that wait for the group hold a reference, too.
            let is_unused = |_: &GroupName, entry: &Arc<Mutex<GroupState>>| {
                Arc::strong_count(entry) == 1 && entry.try_lock().is_ok_and(|state| state.existing.is_none())
            };
            self.groups.remove_if(&name, is_unused);
        }
        remaining
    }

    /// Deletes a security group that is no longer needed. Does nothing if the group does not exist.
    async fn delete(&self, state: &mut GroupState, name: &GroupName) -> Result<(), PolicyError> {
        self.refresh_if_dirty(state, name).await?;
        let Some(id) = state.existing.as_ref().map(|group| group.id.clone()) else { return Ok(()) };
        self.index.clear_ready(name);
        let deleted = self.driver.delete_group(&id).await;
        deleted.step(format!("remove the security group `{name}`"))?;
        self.store(state, name, None, self.index.next_tick());
        debug!(group = %id, %name, "deleted a security group that is not needed any more");
        Ok(())
    }

    /// Lists all security groups of the cluster and stores their state. Returns `true` if the id or
    /// the rules of any group differ from the stored ones.
    pub(super) async fn refresh(&self) -> Result<bool, PolicyError> {
        let listing = self.list_since(self.index.next_tick()).await?;
        for name in listing.groups.keys() {
            self.groups.entry(name.clone()).or_default();
        }
        let entries: Vec<_> =
            self.groups.iter().map(|entry| (entry.key().clone(), Arc::clone(entry.value()))).collect();
        let mut changed = false;
        for (name, entry) in entries {
            let mut state = entry.lock().await;
            if state.tick < listing.tick {
                changed |= self.apply_listing(&mut state, &name, &listing).await;
            }
        }
        Ok(changed)
    }

    /// Returns the duplicates of groups that the last list has shown: those that VIFs have, and those that were deleted after the list.
    pub(super) async fn duplicates(&self) -> Vec<SecurityGroupId> {
        let listing = self.listing.lock().await.clone();
        let is_kept = |group: &SecurityGroup| self.ids.get(&group.name).is_some_and(|id| *id == group.id);
        let several = listing.groups.values().filter(|groups| groups.len() > 1).flatten();
        several.filter(|group| !is_kept(group)).map(|group| group.id.clone()).collect()
    }

    /// Returns the network policies whose security groups still exist but are no longer needed.
    pub(super) async fn unneeded_owners(&self) -> Vec<Owner> {
        let mut owners = Vec::new();
        for name in self.unneeded() {
            let entry = self.entry(&name);
            let state = entry.lock().await;
            owners.extend(state.existing.as_ref().and_then(|group| group.owner.clone()));
        }
        owners
    }

    /// Returns the stored state of a security group behind its lock. Adds an empty state if there is none.
    fn entry(&self, name: &GroupName) -> Arc<Mutex<GroupState>> {
        Arc::clone(&self.groups.entry(name.clone()).or_default())
    }

    /// Returns the names of all security groups that policies need, and of those that exist
    /// regardless of policies.
    fn needed(&self) -> BTreeSet<GroupName> {
        let common = self.index.common_groups().into_iter().map(|group| group.name);
        self.index.group_names().into_iter().chain(common).collect()
    }

    /// Returns the names of the stored security groups that no policy needs, without those that exist regardless of policies.
    fn unneeded(&self) -> Vec<GroupName> {
        let needed = self.needed();
        self.groups.iter().map(|entry| entry.key().clone()).filter(|name| !needed.contains(name)).collect()
    }

    /// Returns the security group with this name, and creates it first if it does not exist.
    async fn ensure(
        &self,
        state: &mut GroupState,
        name: &GroupName,
        owner: Option<&Owner>,
    ) -> Result<SecurityGroup, PolicyError> {
        self.refresh_if_dirty(state, name).await?;
        if let Some(group) = &state.existing {
            return Ok(group.clone());
        }
        self.mark_dirty(state);
        let created = self.driver.create_group(name, owner).await;
        if let Err(error) = &created {
            state.is_dirty = error.ambiguous();
            self.index.set_unavailable(name);
        }
        let group = created.step(format!("create the security group `{name}`"))?;
        self.store(state, name, Some(group.clone()), self.index.next_tick());
        Ok(group)
    }

    /// Marks the state of a security group as unknown before a call of the driver: if the call is
    /// interrupted, the next attempt lists the groups.
    fn mark_dirty(&self, state: &mut GroupState) {
        (state.is_dirty, state.tick) = (true, self.index.next_tick());
    }

    /// Stores a security group as it was observed at the logical time `tick`; `existing` is `None` if it does not exist.
    fn store(&self, state: &mut GroupState, name: &GroupName, existing: Option<SecurityGroup>, tick: u64) {
        match &existing {
            Some(group) => drop(self.ids.insert(name.clone(), group.id.clone())),
            None => drop(self.ids.remove(name)),
        }
        *state = GroupState { existing, is_dirty: false, tick };
    }

    /// If the outcome of the last driver call for this group is unknown, updates `state` from a list of all security groups that was
    /// requested after that call began, and deletes other groups with the same name. Fails if the groups cannot be listed.
    async fn refresh_if_dirty(&self, state: &mut GroupState, name: &GroupName) -> Result<(), PolicyError> {
        if state.is_dirty {
            let listing = self.list_since(state.tick).await?;
            self.apply_listing(state, name, &listing).await;
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
    async fn apply_listing(&self, state: &mut GroupState, name: &GroupName, listing: &GroupListing) -> bool {
        let listed = listing.groups.get(name).map(Vec::as_slice).unwrap_or_default();
        let known = state.existing.as_ref();
        let same = listed.iter().find(|listed| known.is_some_and(|known| known.id == listed.id));
        let kept = same.or(listed.first());
        for duplicate in listed.iter().filter(|listed| kept.is_some_and(|kept| kept.id != listed.id)) {
            if let Err(error) = self.driver.delete_group(&duplicate.id).await {
                warn!(group = %duplicate.id, %name, %error, "could not delete a duplicate security group yet");
            }
        }
        let ids = |group: &SecurityGroup| {
            let rules: BTreeSet<_> = group.rules.iter().map(|existing| existing.id.clone()).collect();
            (group.id.clone(), rules)
        };
        let changed = kept.map(ids) != known.map(ids);
        self.store(state, name, kept.cloned(), listing.tick);
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
