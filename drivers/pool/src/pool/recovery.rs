//! Compares a warm pool with the groups that exist in the external system, at the start and periodically.

use std::collections::BTreeMap;
use std::time::Duration;

use super::PoolKind;
use super::warm_pool::WarmPool;

/// The properties of a group that exists in the external system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Existing<W> {
    /// The configuration of the group.
    pub config: W,
    /// `true` if an owner can use the items of the group at once, as with active VIFs.
    pub ready: bool,
}

/// The differences between the groups that exist and those of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drift<G, I, O> {
    /// Groups that exist but were unknown to the pool. They were added; their items can be handed out after the cool-down, once they are
    /// [confirmed](WarmPool::confirm).
    pub found: Vec<G>,
    /// Groups of the pool that do not exist any more. They were removed.
    pub lost: Vec<G>,
    /// Items of `lost` groups that were in use, with their owners.
    pub lost_in_use: Vec<(I, O)>,
}

/// The state of a pool at the beginning of a listing: the groups that changed after it are not compared with the listing.
#[derive(Clone, Copy, Debug)]
pub struct Epoch {
    /// The number of the last change of the groups.
    number: u64,
    /// `true` if no groups were being created or deleted at that time.
    quiet: bool,
}

/// The result of [`WarmPool::adopt`], which records that an owner holds an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Adopted<O> {
    /// The owner holds the item, and no other one does.
    Held,
    /// The owner holds the item, and so does this other owner, which is a fault. The item is not handed out again before both
    /// have returned it.
    Shared(O),
    /// The pool has no such item, or the group of the item is being deleted, or will be.
    Unknown,
}

impl<K: PoolKind> WarmPool<K> {
    /// Records that `owner` holds `item`, according to a record outside the pool, such as the annotation of a pod.
    pub fn adopt(&mut self, owner: &K::Owner, item: &K::Item) -> Adopted<K::Owner> {
        if !self.is_used(item) && !self.remove_idle(item) {
            return Adopted::Unknown;
        }
        let owners = self.used.entry(item.clone()).or_default();
        let other = owners.iter().find(|other| *other != owner).cloned();
        owners.insert(owner.clone());
        self.taken.entry(owner.clone()).or_insert_with(|| item.clone());
        other.map_or(Adopted::Held, Adopted::Shared)
    }

    /// Returns the state of the pool that [`resync`](Self::resync) needs for a listing of the groups that begins now.
    pub fn epoch(&self) -> Epoch {
        Epoch { number: self.epoch, quiet: self.growing.is_none() && self.shrinking.is_none() }
    }

    /// Returns `true` if no group has changed since `since`, nor was about to change then: a listing that began then shows all groups.
    pub fn is_unchanged(&self, since: Epoch) -> bool {
        since.quiet && since.number == self.epoch
    }

    /// Updates the pool from `existing`, a listing of the groups that existed at some moment between `since` and now, and returns the
    /// differences. Groups of the pool that changed after `since` stay as they are. Groups that the pool does not contain are added only if
    /// [`is_unchanged`](Self::is_unchanged) for `since`, otherwise by a later listing. Their items are in their cool-down first, since the
    /// time of their last use is not known, until they are [confirmed](Self::confirm). If the first listing adds groups, none are created
    /// ahead of demand until then.
    pub fn resync(
        &mut self,
        since: Epoch,
        existing: &BTreeMap<K::Group, Existing<K::Want>>,
        now: Duration,
    ) -> Drift<K::Group, K::Item, K::Owner> {
        let (unchanged, first) = (self.is_unchanged(since), self.epoch == 0);
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
        // What was found at the start is in use by now.
        self.is_starting &= first || !self.unconfirmed.is_empty();
        for (name, found) in existing.iter().filter(|_| unchanged) {
            if self.groups.contains_key(name) {
                continue;
            }
            drift.found.push(name.clone());
            let until = now + self.cool_down;
            let items = self.insert(name, &found.config, found.ready);
            self.unconfirmed.extend(items.into_iter().map(|item| (item, until)));
            if first {
                (self.is_starting, self.on_demand_until) = (true, now + self.cool_down);
            }
        }
        drift
    }

    /// Returns the time from which on [`confirm`](Self::confirm) makes an item free; `None` if there is nothing to confirm.
    pub fn confirm_at(&self) -> Option<Duration> {
        self.unconfirmed.values().min().copied()
    }

    /// Returns `true` if only [`confirm`](Self::confirm) ends the cool-down of the item.
    pub fn is_unconfirmed(&self, item: &K::Item) -> bool {
        self.unconfirmed.contains_key(item)
    }

    /// Makes the items free whose cool-down after a listing had ended at the time `since`, and for which `is_free` returns `true`: what was
    /// read after `since` shows that they still exist, and that nobody uses them. The process that led before may have been about to delete
    /// an item, or to record its owner. The others [wait](Self::postpone).
    pub fn confirm(&mut self, since: Duration, now: Duration, is_free: impl Fn(&K::Item) -> bool) {
        let due = self.unconfirmed.iter().filter(|(_, until)| **until <= since);
        let due: Vec<_> = due.map(|(item, _)| item.clone()).collect();
        self.is_starting &= due.is_empty();
        for item in due.into_iter().filter(is_free) {
            self.unconfirmed.remove(&item);
            self.add_free(item, now);
        }
        self.postpone(since, now);
    }

    /// Lets the items wait for another read that [`confirm`](Self::confirm) would have made free at the time `since`: for 30 s, or for half the
    /// age of the pool, if that is longer, and 10 minutes at most.
    pub fn postpone(&mut self, since: Duration, now: Duration) {
        let again = now + (now / 2).clamp(Duration::from_secs(30), Duration::from_secs(600));
        self.unconfirmed.values_mut().filter(|until| **until <= since).for_each(|until| *until = again);
    }

    /// Ends the cool-down of an item only after another read [confirms](Self::confirm) it, because an owner of it may be unknown. Does nothing
    /// if the item is not in its cool-down.
    pub fn mark_unconfirmed(&mut self, item: &K::Item) {
        if let Some(place) = self.cooling.iter().position(|(cooling, _)| cooling == item)
            && let Some((item, until)) = self.cooling.remove(place)
        {
            self.unconfirmed.insert(item, until);
        }
    }

    /// Requests the deletion of a group, and stops handing out its items. Does nothing while one of them is in use.
    pub fn discard(&mut self, name: &K::Group) {
        let items = K::items(name);
        if items.iter().any(|item| self.is_used(item)) || !self.groups.contains_key(name) {
            return;
        }
        for item in &items {
            self.remove_idle(item);
        }
        self.to_delete.insert(name.clone());
    }

    /// Requests the deletion of all groups without an item in use, without a cool-down.
    pub fn discard_unused(&mut self) {
        for name in self.groups.keys().cloned().collect::<Vec<_>>() {
            self.discard(&name);
        }
    }

    /// Removes a group that does not exist any more. Returns its items that were in use, with their owners.
    pub fn lose(&mut self, name: &K::Group) -> Vec<(K::Item, K::Owner)> {
        self.epoch += 1;
        if let Some((_, shrinking)) = &mut self.shrinking {
            shrinking.remove(name);
        }
        let mut lost_in_use = Vec::new();
        for item in K::items(name) {
            self.remove_idle(&item);
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
