//! The security groups that exist, as far as this process knows, and how they become those that there are to be.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dashmap::DashMap;
use staffetta_driver::policy::PolicyBook;
use staffetta_driver::{
    DriverError, GroupName, HeldRule, NetworkPolicyDriver, Owner, Reason, RuleChange, SecurityGroup,
    SecurityGroupId, SecurityRule,
};
use tokio::sync::Mutex;
use tracing::{debug, warn};

use super::error::PolicyError;

/// A group that nobody wants and that is still there.
pub(super) struct Left {
    /// For whom it was made.
    pub(super) owner: Option<Owner>,
    pub(super) why: WhyLeft,
}

/// Why a group is still there that nobody wants.
pub(super) enum WhyLeft {
    /// It guards somebody.
    InUse(SecurityGroupId),
    /// It could not be removed.
    Failed(PolicyError),
}

/// The rules of a group, as they are wanted.
type Rules = BTreeSet<SecurityRule<GroupName>>;

/// The groups of this cluster. Each is changed by one at a time.
pub(super) struct Groups {
    driver: Arc<dyn NetworkPolicyDriver>,
    book: Arc<PolicyBook>,
    known: DashMap<GroupName, Arc<Mutex<Known>>>,
    /// The ids of those that exist, for the rules that name them.
    ids: DashMap<GroupName, SecurityGroupId>,
    /// What was listed last. One list answers for all who are in doubt.
    listing: Mutex<Listing>,
}

/// What is known of one group.
#[derive(Default)]
struct Known {
    id: Option<SecurityGroupId>,
    owner: Option<Owner>,
    rules: Vec<HeldRule>,
    /// Whether a call was made of which it is not known what came of it.
    doubtful: bool,
    /// When that was so.
    tick: u64,
}

#[derive(Clone, Default)]
struct Listing {
    /// When it was asked for.
    tick: u64,
    groups: Arc<BTreeMap<GroupName, Vec<SecurityGroup>>>,
}

impl Groups {
    pub(super) fn new(driver: Arc<dyn NetworkPolicyDriver>, book: Arc<PolicyBook>) -> Self {
        let (known, ids, listing) = (DashMap::new(), DashMap::new(), Mutex::default());
        Self { driver, book, known, ids, listing }
    }

    /// Sees to it that the group exists and has just these rules; then pods may bear it. Rules that name a group that is not there
    /// are missing, and that is an error; those that are not wanted go all the same.
    pub(super) async fn settle(
        &self,
        name: &GroupName,
        owner: Option<&Owner>,
        rules: &Rules,
    ) -> Result<(), PolicyError> {
        let entry = self.entry(name);
        let mut known = entry.lock().await;
        let id = self.ensure(&mut known, name, owner).await?;
        let wanted: Vec<_> = rules.iter().filter_map(|rule| self.in_ids(rule)).collect();
        let change = RuleChange::between(&known.rules, &wanted);
        if !change.is_empty() {
            // Entered before the call: whatever ends it, the next attempt looks what came of it.
            self.doubt(&mut known);
            let added = self.driver.change_rules(&id, &change).await;
            let added = added.map_err(|source| failed_rules(name, source))?;
            known.rules.retain(|held| !change.remove.contains(&held.id));
            known.rules.extend(added);
            self.sure(&mut known);
        }
        if wanted.len() < rules.len() {
            return Err(PolicyError::PeersMissing);
        }
        self.book.ready(name, &id);
        Ok(())
    }

    /// Sees to it that the group exists; pods may bear it whatever its rules are.
    pub(super) async fn settle_existence(&self, name: &GroupName) -> Result<(), PolicyError> {
        let entry = self.entry(name);
        let mut known = entry.lock().await;
        let id = self.ensure(&mut known, name, None).await?;
        let surplus = known.rules.iter().filter(|held| held.rule.as_ref().is_none_or(is_everything));
        let change = RuleChange { remove: surplus.map(|held| held.id.clone()).collect(), add: Vec::new() };
        if !change.is_empty() {
            self.doubt(&mut known);
            let changed = self.driver.change_rules(&id, &change).await;
            changed.map_err(|source| failed_rules(name, source))?;
            known.rules.retain(|held| !change.remove.contains(&held.id));
            self.sure(&mut known);
        }
        self.book.ready(name, &id);
        Ok(())
    }

    /// Removes the groups that nobody wants any more, each for itself. Answers those that are left.
    pub(super) async fn prune(&self) -> Vec<Left> {
        let mut left = Vec::new();
        for name in self.unwanted() {
            let entry = self.entry(&name);
            let mut known = entry.lock().await;
            if self.wanted().contains(&name) {
                continue;
            }
            if let Err(why) = self.remove(&mut known, &name).await {
                left.push(Left { owner: known.owner.clone(), why });
            }
            drop(known);
            drop(entry);
            // Whoever waits for it meanwhile holds it too.
            let gone = |_: &GroupName, entry: &Arc<Mutex<Known>>| {
                Arc::strong_count(entry) == 1 && entry.try_lock().is_ok_and(|known| known.id.is_none())
            };
            self.known.remove_if(&name, gone);
        }
        left
    }

    async fn remove(&self, known: &mut Known, name: &GroupName) -> Result<(), WhyLeft> {
        self.be_sure(known, name).await.map_err(WhyLeft::Failed)?;
        let Some(id) = known.id.clone() else { return Ok(()) };
        self.book.not_ready(name);
        match self.driver.remove_group(&id).await {
            Ok(()) => {
                self.ids.remove(name);
                *known = Known::default();
                debug!(group = %id, %name, "a security group that nobody wants any more was removed");
                Ok(())
            }
            Err(error) if error.reason() == Reason::Conflict => Err(WhyLeft::InUse(id)),
            Err(source) => Err(WhyLeft::Failed(PolicyError::Remove { name: name.clone(), source })),
        }
    }

    /// Reads all groups. Answers whether something is otherwise than it was known.
    pub(super) async fn refresh(&self) -> Result<bool, PolicyError> {
        let tick = self.book.tick();
        let listing = self.listed(tick).await?;
        for name in listing.groups.keys() {
            self.known.entry(name.clone()).or_default();
        }
        let entries: Vec<_> =
            self.known.iter().map(|entry| (entry.key().clone(), Arc::clone(entry.value()))).collect();
        let mut drifted = false;
        for (name, entry) in entries {
            let mut known = entry.lock().await;
            if known.tick < listing.tick {
                drifted |= self.take_over(&mut known, &name, &listing).await;
            }
        }
        Ok(drifted)
    }

    /// For whom the groups were made that nobody wants.
    pub(super) async fn orphaned(&self) -> Vec<Owner> {
        let mut owners = Vec::new();
        for name in self.unwanted() {
            let entry = self.entry(&name);
            let known = entry.lock().await;
            owners.extend(known.owner.clone().filter(|_| known.id.is_some()));
        }
        owners
    }

    fn entry(&self, name: &GroupName) -> Arc<Mutex<Known>> {
        Arc::clone(&self.known.entry(name.clone()).or_default())
    }

    fn wanted(&self) -> BTreeSet<GroupName> {
        let common = self.book.common_groups().into_iter().map(|(name, _)| name);
        self.book.names().into_iter().chain(common).collect()
    }

    fn unwanted(&self) -> Vec<GroupName> {
        let wanted = self.wanted();
        self.known.iter().map(|entry| entry.key().clone()).filter(|name| !wanted.contains(name)).collect()
    }

    async fn ensure(
        &self,
        known: &mut Known,
        name: &GroupName,
        owner: Option<&Owner>,
    ) -> Result<SecurityGroupId, PolicyError> {
        self.be_sure(known, name).await?;
        if let Some(id) = &known.id {
            return Ok(id.clone());
        }
        self.doubt(known);
        let made = self.driver.make_group(name, owner).await.map_err(|source| {
            if !source.ambiguous() {
                self.sure(known);
            }
            self.book.unavailable(name);
            PolicyError::Make { name: name.clone(), source }
        })?;
        self.sure(known);
        known.id = Some(made.id.clone());
        known.owner = made.owner;
        known.rules = made.rules;
        self.ids.insert(name.clone(), made.id.clone());
        Ok(made.id)
    }

    fn doubt(&self, known: &mut Known) {
        known.doubtful = true;
        known.tick = self.book.tick();
    }

    fn sure(&self, known: &mut Known) {
        known.doubtful = false;
        known.tick = self.book.tick();
    }

    /// Looks what came of the calls of which that is not known.
    async fn be_sure(&self, known: &mut Known, name: &GroupName) -> Result<(), PolicyError> {
        if known.doubtful {
            let listing = self.listed(known.tick).await?;
            self.take_over(known, name, &listing).await;
        }
        Ok(())
    }

    /// A list that was asked for not before `tick`.
    async fn listed(&self, tick: u64) -> Result<Listing, PolicyError> {
        let mut listing = self.listing.lock().await;
        if listing.tick < tick {
            let tick = self.book.tick();
            let mut groups: BTreeMap<GroupName, Vec<SecurityGroup>> = BTreeMap::new();
            for group in self.driver.groups().await.map_err(PolicyError::Marks)? {
                groups.entry(group.name.clone()).or_default().push(group);
            }
            for of_name in groups.values_mut() {
                of_name.sort_by(|a, b| a.id.cmp(&b.id));
            }
            *listing = Listing { tick, groups: Arc::new(groups) };
        }
        Ok(listing.clone())
    }

    /// Believes the list. Of two groups of one name, one is kept. Answers whether something is otherwise than it was known.
    async fn take_over(&self, known: &mut Known, name: &GroupName, listing: &Listing) -> bool {
        let listed = listing.groups.get(name).map(Vec::as_slice).unwrap_or_default();
        let same = listed.iter().find(|group| Some(&group.id) == known.id.as_ref());
        let kept = same.or(listed.first());
        for stray in listed.iter().filter(|group| kept.is_some_and(|kept| kept.id != group.id)) {
            if let Err(error) = self.driver.remove_group(&stray.id).await {
                warn!(group = %stray.id, %name, %error, "a security group that was made twice could not be removed yet");
            }
        }
        let drifted = kept.map(|group| &group.id) != known.id.as_ref()
            || kept.is_some_and(|group| !same_rules(&group.rules, &known.rules));
        known.doubtful = false;
        known.tick = listing.tick;
        if let Some(group) = kept {
            known.id = Some(group.id.clone());
            known.owner.clone_from(&group.owner);
            known.rules.clone_from(&group.rules);
            self.ids.insert(name.clone(), group.id.clone());
        } else {
            *known = Known { tick: known.tick, ..Known::default() };
            self.ids.remove(name);
        }
        if drifted {
            // It is believed when its rules have been settled.
            self.book.not_ready(name);
        }
        drifted
    }

    /// The rule with the id of the group that it names; none when that is not there.
    fn in_ids(&self, rule: &SecurityRule<GroupName>) -> Option<SecurityRule<SecurityGroupId>> {
        rule.naming(|name| self.ids.get(name).map(|id| id.clone()))
    }
}

fn failed_rules(name: &GroupName, source: DriverError) -> PolicyError {
    PolicyError::Rules { name: name.clone(), source }
}

fn is_everything(rule: &SecurityRule<SecurityGroupId>) -> bool {
    rule.ports.is_none() && rule.remote == staffetta_driver::Remote::Any
}

/// Whether these are the same rules, in any order.
fn same_rules(a: &[HeldRule], b: &[HeldRule]) -> bool {
    let ids = |rules: &[HeldRule]| rules.iter().map(|held| held.id.clone()).collect::<BTreeSet<_>>();
    ids(a) == ids(b)
}
