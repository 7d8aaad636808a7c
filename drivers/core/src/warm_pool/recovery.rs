//! What exists, as others tell it: at the start, and from time to time.

use std::collections::BTreeMap;
use std::time::Duration;

use super::kind::Kind;
use super::pool::{Group, Used, WarmPool};

/// What the other world tells of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told<W> {
    /// How it is.
    pub tag: W,
    /// Whether its items are ready for use at once.
    pub ready: bool,
}

/// How what exists differs from what a pool knew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drift<G, I, O> {
    /// Groups that nobody knew of. They are taken in, and cool down first.
    pub found: Vec<G>,
    /// Groups that do not exist any more, and are forgotten.
    pub lost: Vec<G>,
    /// Items of lost groups that somebody holds.
    pub bereft: Vec<(I, O)>,
}

/// Where a pool stood when somebody began to read what exists.
#[derive(Clone, Copy, Debug)]
pub struct Epoch {
    number: u64,
    quiet: bool,
}

/// What came of telling a pool who holds an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Adopted<O> {
    /// The owner holds it.
    Held,
    /// The owner holds it, and so does this one: somebody made a mistake. It is handed out only when both have given it back.
    Shared(O),
    /// There is no such item.
    Unknown,
}

impl<K: Kind> WarmPool<K> {
    /// Says that `owner` holds `item`, which is known by somebody else's word.
    pub fn adopt(&mut self, owner: &K::Owner, item: &K::Item) -> Adopted<K::Owner> {
        let adopted = if let Some(used) = self.used.get_mut(item) {
            let other = used.owners.iter().find(|other| *other != owner).cloned();
            used.owners.insert(owner.clone());
            other.map_or(Adopted::Held, Adopted::Shared)
        } else {
            let warm = self.unfree(item);
            let cooling = || self.cooling.remove(item).map(|cooling| cooling.group);
            let Some(group) = warm.or_else(cooling) else { return Adopted::Unknown };
            self.used.insert(item.clone(), Used { group, owners: [owner.clone()].into() });
            Adopted::Held
        };
        self.taken.entry(owner.clone()).or_insert_with(|| item.clone());
        adopted
    }

    /// Begins to read what exists.
    pub fn epoch(&self) -> Epoch {
        Epoch { number: self.epoch, quiet: self.growing.is_none() && self.shrinking.is_none() }
    }

    /// Takes in what existed at some moment between `since` and now. What changed meanwhile is left to the next time; all
    /// else is afterwards as it was told. What is found cools down, for nobody knows since when it has been free; a pool that
    /// begins so makes nothing ahead of demand until then.
    pub fn resync(
        &mut self,
        since: Epoch,
        existing: &BTreeMap<K::Group, Told<K::Want>>,
        now: Duration,
    ) -> Drift<K::Group, K::Item, K::Owner> {
        let mut drift = Drift { found: Vec::new(), lost: Vec::new(), bereft: Vec::new() };
        for (name, told) in existing {
            if let Some(group) = self.groups.get_mut(name) {
                if group.touched <= since.number {
                    (group.tag, group.ready) = (Some(told.tag.clone()), told.ready);
                }
            } else if since.quiet && since.number == self.epoch {
                drift.found.push(name.clone());
            }
        }
        let gone = |(name, group): (&K::Group, &Group<K>)| {
            (group.touched <= since.number && !existing.contains_key(name)).then(|| name.clone())
        };
        drift.lost = self.groups.iter().filter_map(gone).collect();
        for name in &drift.lost {
            drift.bereft.extend(self.lose(name));
        }
        for name in &drift.found {
            if let Some(told) = existing.get(name) {
                self.find(name, told, now);
            }
        }
        drift
    }

    /// A group exists that nobody knew of.
    fn find(&mut self, name: &K::Group, told: &Told<K::Want>, now: Duration) {
        let items = K::items(name);
        self.groups.insert(name.clone(), Group::new(&told.tag, told.ready, self.epoch, items.len()));
        for item in items {
            self.cool(item, name.clone(), now);
        }
        if self.epoch == 0 {
            self.calm_until = now + self.cool_down;
        }
    }

    /// Lets a group be destroyed, for it is not to be handed out any more. Answers whether that may be: nobody holds any of it.
    pub fn discard(&mut self, name: &K::Group) -> bool {
        let items = K::items(name);
        if items.iter().any(|item| self.used.contains_key(item)) {
            return false;
        }
        if !self.groups.contains_key(name) {
            return false;
        }
        for item in &items {
            self.unfree(item);
            self.cooling.remove(item);
        }
        self.condemn(name);
        true
    }

    /// The group does not exist any more. Answers which of its items are held, and by whom.
    pub fn lose(&mut self, name: &K::Group) -> Vec<(K::Item, K::Owner)> {
        self.epoch += 1;
        if let Some((_, shrinking)) = &mut self.shrinking {
            shrinking.remove(name);
        }
        let mut bereft = Vec::new();
        for item in K::items(name) {
            self.unfree(&item);
            self.cooling.remove(&item);
            for owner in self.used.remove(&item).into_iter().flat_map(|used| used.owners) {
                if self.taken.get(&owner) == Some(&item) {
                    self.taken.remove(&owner);
                }
                bereft.push((item.clone(), owner));
            }
        }
        self.drop_group(name);
        bereft
    }
}
