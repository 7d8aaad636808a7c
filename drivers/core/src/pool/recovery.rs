//! Reconciles the pool with the groups that exist, at the start and periodically.

use std::collections::BTreeMap;
use std::time::Duration;

use super::kind::Kind;
use super::warm_pool::WarmPool;

/// A group, as a list call to the external system returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Existing<W> {
    /// The configuration.
    pub config: W,
    /// `true` if its items are ready for use at once.
    pub ready: bool,
}

/// The differences between the existing groups and those of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drift<G, I, O> {
    /// Groups that the pool did not have. They are inserted, and cool down first.
    pub found: Vec<G>,
    /// Groups that do not exist any more, and are removed.
    pub lost: Vec<G>,
    /// Items of removed groups that are in use, with their owners.
    pub lost_in_use: Vec<(I, O)>,
}

/// The point in the pool's history at which a listing began.
#[derive(Clone, Copy, Debug)]
pub struct Epoch {
    number: u64,
    quiet: bool,
}

/// The result of adopting an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Adopted<O> {
    /// The owner owns it.
    Held,
    /// The owner owns it, and so does this other one, by a fault. It is handed out only after both have returned it.
    Shared(O),
    /// There is no such item.
    Unknown,
}

impl<K: Kind> WarmPool<K> {
    /// Records that `owner` owns `item`, as something outside the pool shows.
    pub fn adopt(&mut self, owner: &K::Owner, item: &K::Item) -> Adopted<K::Owner> {
        if !self.is_used(item) && !self.withdraw(item) {
            return Adopted::Unknown;
        }
        let owners = self.used.entry(item.clone()).or_default();
        let other = owners.iter().find(|other| *other != owner).cloned();
        owners.insert(owner.clone());
        self.taken.entry(owner.clone()).or_insert_with(|| item.clone());
        other.map_or(Adopted::Held, Adopted::Shared)
    }

    /// Marks the begin of a listing.
    pub fn epoch(&self) -> Epoch {
        Epoch { number: self.epoch, quiet: self.growing.is_none() && self.shrinking.is_none() }
    }

    /// Takes a listing of the groups that existed at some moment between `since` and now. Groups that changed meanwhile are left
    /// to the next listing. New ones cool down first, since the time of their last use is unknown; after the first listing
    /// nothing is created ahead of demand until then.
    pub fn resync(
        &mut self,
        since: Epoch,
        existing: &BTreeMap<K::Group, Existing<K::Want>>,
        now: Duration,
    ) -> Drift<K::Group, K::Item, K::Owner> {
        let (unchanged, first) = (since.quiet && since.number == self.epoch, self.epoch == 0);
        let mut drift = Drift { found: Vec::new(), lost: Vec::new(), lost_in_use: Vec::new() };
        for (name, group) in &mut self.groups {
            match existing.get(name) {
                _ if group.epoch > since.number => {}
                Some(found) => (group.config, group.ready) = (Some(found.config.clone()), found.ready),
                None => drift.lost.push(name.clone()),
            }
        }
        for name in &drift.lost {
            drift.lost_in_use.extend(self.lose(name));
        }
        for (name, found) in existing.iter().filter(|_| unchanged) {
            if self.groups.contains_key(name) {
                continue;
            }
            drift.found.push(name.clone());
            for item in self.insert(name, &found.config, found.ready) {
                self.cool(item, now);
            }
            if first {
                self.on_demand_until = now + self.cool_down;
            }
        }
        drift
    }

    /// Lets a group be deleted and hands out none of its items any more. Does nothing while one of them is in use.
    pub fn discard(&mut self, name: &K::Group) {
        let items = K::items(name);
        if items.iter().any(|item| self.is_used(item)) || !self.groups.contains_key(name) {
            return;
        }
        for item in &items {
            self.withdraw(item);
        }
        self.to_delete.insert(name.clone());
    }

    /// Lets all groups be deleted none of whose items is in use, without a cool-down.
    pub fn discard_unused(&mut self) {
        for name in self.groups.keys().cloned().collect::<Vec<_>>() {
            self.discard(&name);
        }
    }

    /// Removes a group that does not exist any more. Returns its items that are in use, with their owners.
    pub fn lose(&mut self, name: &K::Group) -> Vec<(K::Item, K::Owner)> {
        self.epoch += 1;
        if let Some((_, shrinking)) = &mut self.shrinking {
            shrinking.remove(name);
        }
        let mut lost_in_use = Vec::new();
        for item in K::items(name) {
            self.withdraw(&item);
            for owner in self.used.remove(&item).into_iter().flatten() {
                self.forget(&owner, &item);
                lost_in_use.push((item.clone(), owner));
            }
        }
        self.to_delete.remove(name);
        self.groups.remove(name);
        lost_in_use
    }
}
