//! A pool with a model of its external system, and the invariants that must hold after each step.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::super::*;
use super::Act;

pub(super) const COOL_DOWN: Duration = Duration::from_secs(20);

/// Groups of `SIZE` items. The fewest free come first; of single ones those that fit, then the longest free.
#[derive(Debug)]
pub(super) struct Of<const SIZE: u32>;

pub(super) type Item = (u32, u32);

impl<const SIZE: u32> PoolKind for Of<SIZE> {
    type Group = u32;
    type Item = Item;
    type Want = u8;
    type Owner = u8;
    type Rank = (usize, bool, bool, Duration);

    fn items(group: &u32) -> Vec<Item> {
        (0..SIZE).map(|place| (*group, place)).collect()
    }

    fn group(item: &Item) -> u32 {
        item.0
    }

    fn rank(candidate: &Candidate<'_, Self>) -> Self::Rank {
        let &Candidate { free, fits, ready, since, .. } = candidate;
        if SIZE == 1 { (0, !fits, !ready, since) } else { (free, false, false, Duration::ZERO) }
    }
}

pub(super) struct World<const SIZE: u32> {
    pub(super) pool: WarmPool<Of<SIZE>>,
    policy: MinMaxBatch,
    pub(super) now: Duration,
    /// The groups that exist.
    pub(super) exist: BTreeMap<u32, u8>,
    next: u32,
    growing: Option<(u64, usize, u8)>,
    shrinking: Option<(u64, Vec<u32>)>,
    /// The items that the pool handed out, by owner.
    pub(super) held: BTreeMap<u8, Item>,
    /// The owners that have persisted their item.
    annotated: BTreeMap<u8, Item>,
    freed: BTreeMap<Item, Duration>,
    reading: Option<(Epoch, BTreeMap<u32, Existing<u8>>, Duration)>,
    /// The time until which no more may be created.
    backing_off_until: Duration,
    /// `true` if items are created for waiting owners only.
    refused: bool,
}

impl<const SIZE: u32> World<SIZE> {
    pub(super) fn new(policy: MinMaxBatch) -> Self {
        Self {
            pool: WarmPool::new(Arc::new(policy), COOL_DOWN),
            policy,
            now: Duration::from_secs(1000),
            exist: BTreeMap::new(),
            next: 0,
            growing: None,
            shrinking: None,
            held: BTreeMap::new(),
            annotated: BTreeMap::new(),
            freed: BTreeMap::new(),
            reading: None,
            backing_off_until: Duration::ZERO,
            refused: false,
        }
    }

    pub(super) fn act(&mut self, act: Act) {
        match act {
            Act::Take(owner, want) => self.take(owner, want),
            Act::Annotate(owner) => {
                self.annotated.extend(self.held.get(&owner).map(|item| (owner, *item)));
            }
            Act::GiveBack(owner) => self.give_back(owner),
            Act::PutBack(owner) if !self.annotated.contains_key(&owner) => {
                if let Some(item) = self.held.remove(&owner) {
                    assert_eq!(self.pool.undo_take(&owner, self.now), Some(item));
                }
            }
            Act::PutBack(_) => {}
            Act::Pass(time) => self.now += Duration::from_millis(time),
            Act::SizeChange => self.plan(),
            Act::Grown { made, reported, more, shortfall } => {
                self.grown(made.into(), reported.into(), more, shortfall);
            }
            Act::Shrunk { left, gone } => self.shrunk(left.into(), gone),
            Act::Vanish(which) => self.vanish(which.into()),
            Act::Read => self.reading = Some((self.pool.epoch(), self.reported(), self.now)),
            Act::Resync => self.resync(),
            Act::Drain(true) => self.pool.drain(),
            Act::Drain(false) => self.pool.resume(),
            Act::Restart => self.restart(),
        }
        self.wake();
        self.audit();
    }

    fn take(&mut self, owner: u8, want: u8) {
        self.refused &= self.held.contains_key(&owner);
        let free: Vec<_> = self.pool.warm.keys().map(|item| (*item, item.0)).collect();
        let fits = |group: &u32| self.pool.groups[group].config == Some(want);
        let fitting: BTreeSet<_> =
            free.iter().filter(|(_, group)| fits(group)).map(|(item, _)| *item).collect();
        let before = self.held.get(&owner).copied();
        let (item, adapt) = match self.pool.take(&owner, &want, self.now) {
            Take::Got(item) => (item, false),
            Take::Adapt(item) => (item, true),
            Take::Wait(_) => {
                assert!(before.is_none(), "an owner that has an item waits for none");
                return;
            }
        };
        assert!(before.is_none_or(|before| before == item), "P9: twice the same");
        if before.is_none() {
            if let Some(freed) = self.freed.get(&item) {
                assert!(self.now >= *freed + COOL_DOWN, "P8: {item:?} came {:?} after {freed:?}", self.now);
            }
            assert!(self.held.values().all(|held| *held != item), "P1: {item:?} has an owner");
            self.pick(item, &free, &fitting);
        }
        if adapt {
            self.exist.entry(item.0).and_modify(|config| *config = want);
            self.pool.changed(&item.0, Some(&want));
        }
        assert_eq!(self.pool.groups[&item.0].config, Some(want));
        self.held.insert(owner, item);
    }

    /// P4: the item is the right one of those that were free, and of those that had just cooled down.
    fn pick(&self, item: Item, free: &[(Item, u32)], fitting: &BTreeSet<Item>) {
        if SIZE == 1 {
            assert!(
                fitting.is_empty() || self.pool.groups[&item.0].config.is_some(),
                "P4: one that fits was free"
            );
            return;
        }
        let left = |group: u32| self.pool.warm.keys().filter(|item| item.0 == group).count();
        let chosen = left(item.0) + 1;
        for (_, group) in free.iter().filter(|(_, group)| *group != item.0) {
            assert!(chosen <= left(*group), "P4: {group} had fewer free");
        }
    }

    fn give_back(&mut self, owner: u8) {
        self.pool.leave(&owner);
        let Some(item) = self.held.remove(&owner) else { return };
        self.annotated.remove(&owner);
        assert!(self.pool.give_back(&owner, &item, self.now));
        assert!(!self.pool.give_back(&owner, &item, self.now), "P9: given back once");
        self.freed.insert(item, self.now);
    }

    pub(super) fn plan(&mut self) {
        while let Some(action) = self.pool.plan(self.now) {
            match action {
                Action::Grow { op, count, want } => {
                    assert!(self.growing.is_none() && count > 0, "P10: one at a time");
                    assert!(self.now >= self.backing_off_until, "P10: too early");
                    let wanted = self.pool.waiting().next().is_some();
                    assert!(wanted || !self.refused, "P10: nobody waits for it");
                    assert!(!self.pool.is_draining());
                    let cap = self.policy.cap_groups.unwrap_or(usize::MAX);
                    assert!(self.pool.groups.len() + count <= cap, "P5: past the cap");
                    self.growing = Some((op, count, want));
                }
                Action::Shrink { op, groups } => {
                    assert!(self.shrinking.is_none(), "P10: one at a time");
                    for item in groups.iter().flat_map(Of::<SIZE>::items) {
                        assert!(self.held.values().all(|held| *held != item), "P3: {item:?} is in use");
                        let cooled = self.freed.get(&item).is_none_or(|freed| self.now >= *freed + COOL_DOWN);
                        assert!(cooled, "P3: {item:?} cools down");
                    }
                    self.shrinking = Some((op, groups));
                }
            }
        }
    }

    /// The world creates `made` of the requested groups, and reports `reported` of them. With `more`, it goes on to create
    /// those that are missing.
    fn grown(&mut self, made: usize, reported: usize, more: bool, shortfall: Option<Shortfall>) {
        let Some((op, count, want)) = self.growing.take() else { return };
        let made: Vec<_> = (0..made.min(count)).map(|_| self.make(want)).collect();
        let rest = count - made.len();
        let got: Vec<_> = made.into_iter().take(reported).collect();
        if more && rest > 0 && !got.is_empty() && shortfall.is_none() {
            assert!(self.pool.grown(op, Grown { got, rest, shortfall }, self.now));
            assert_eq!(self.pool.counts(self.now).growing, rest, "P9: the attempt goes on");
            self.growing = Some((op, rest, want));
            return;
        }
        if shortfall == Some(Shortfall::Refused) {
            self.refused = self.pool.waiting().all(|(_, wish)| *wish == want);
        } else if shortfall.is_some() || got.is_empty() {
            let hint = if let Some(Shortfall::Throttled(hint)) = shortfall { hint } else { Duration::ZERO };
            self.backing_off_until = self.now + hint.max(Duration::from_secs(1));
        }
        assert!(self.pool.grown(op, Grown { got, rest: 0, shortfall }, self.now));
        let (before, stale) =
            (self.pool.counts(self.now), Grown { got: vec![u32::MAX], rest: 0, shortfall: None });
        assert!(!self.pool.grown(op, stale, self.now), "P9: an answer counts once");
        assert_eq!(self.pool.counts(self.now), before);
        if shortfall == Some(Shortfall::Refused) {
            let waiting: Vec<_> =
                self.pool.waiting().filter(|(_, wish)| **wish == want).map(|(owner, _)| *owner).collect();
            assert_eq!(self.pool.dismiss(&want), waiting);
            assert!(self.pool.waiting().all(|(_, wish)| *wish != want));
        }
    }

    fn make(&mut self, want: u8) -> u32 {
        self.next += 1;
        self.exist.insert(self.next, want);
        self.next
    }

    /// The world says of `left` groups that they are still there; with `gone`, they are not.
    fn shrunk(&mut self, left: usize, gone: bool) {
        let Some((op, groups)) = self.shrinking.take() else { return };
        let left = &groups[..left.min(groups.len())];
        for group in &groups {
            if gone || !left.contains(group) {
                self.exist.remove(group);
            }
        }
        assert!(self.pool.shrunk(op, left, self.now));
        assert!(!self.pool.shrunk(op, &[], self.now), "P9: an answer counts once");
    }

    fn vanish(&mut self, which: usize) {
        if let Some(group) = self.exist.keys().nth(which % self.exist.len().max(1)).copied() {
            self.exist.remove(&group);
        }
    }

    fn reported(&self) -> BTreeMap<u32, Existing<u8>> {
        self.exist.iter().map(|(&group, &config)| (group, Existing { config, ready: false })).collect()
    }

    fn resync(&mut self) {
        let Some((epoch, reported, since)) = self.reading.take() else { return };
        let found = self.pool.unconfirmed.clone();
        self.pool.confirm(since, self.now, |item| reported.contains_key(&item.0));
        let early = |(item, until): (&Item, &Duration)| *until > since && self.pool.warm.contains_key(item);
        assert!(!found.iter().any(early), "P8: an item was free before its cool-down was over");
        let drift = self.pool.resync(epoch, &reported, self.now);
        for (_, owner) in drift.lost_in_use {
            self.held.remove(&owner);
            self.annotated.remove(&owner);
        }
    }

    /// The process dies, and another one begins with what exists and what is written down.
    fn restart(&mut self) {
        let lost = |item: &Item| !self.exist.contains_key(&item.0);
        self.annotated.retain(|_, item| !lost(item));
        for (owner, item) in &self.held {
            if !self.annotated.contains_key(owner) {
                self.freed.remove(item);
            }
        }
        (self.growing, self.shrinking, self.reading) = (None, None, None);
        (self.backing_off_until, self.refused) = (Duration::ZERO, false);
        self.pool = WarmPool::new(Arc::new(self.policy), COOL_DOWN);
        let drift = self.pool.resync(self.pool.epoch(), &self.reported(), self.now);
        assert_eq!(drift.found.len(), self.exist.len());
        self.held.clone_from(&self.annotated);
        for (owner, item) in &self.annotated {
            assert_eq!(self.pool.adopt(owner, item), Adopted::Held, "P11");
        }
        assert!(self.pool.warm.is_empty(), "P11: what was free cools down");
    }

    /// Whoever need wait no longer takes, or gives up.
    fn wake(&mut self) {
        for (owner, want) in self.pool.tick(self.now) {
            self.take(owner, want);
            self.pool.leave(&owner);
        }
    }

    fn audit(&mut self) {
        let pool = &self.pool;
        for name in pool.groups.keys() {
            for item in Of::<SIZE>::items(name) {
                let places = [
                    pool.used.contains_key(&item),
                    pool.warm.contains_key(&item),
                    pool.cooling.iter().any(|(cooling, _)| *cooling == item),
                    pool.unconfirmed.contains_key(&item),
                ];
                let places = places.into_iter().filter(|is| *is).count();
                assert_eq!(
                    places,
                    usize::from(!pool.to_delete.contains(name)),
                    "P1: {item:?} in {places} places"
                );
            }
        }
        let free = |name: &u32| pool.warm.keys().filter(|item| item.0 == *name).count();
        let wholly_free = pool.groups.keys().filter(|name| free(name) == SIZE as usize).count();
        assert_eq!(pool.whole, wholly_free, "P2: what is counted is so");
        let exists = |name| pool.groups.contains_key(name);
        assert!(pool.to_delete.iter().all(exists), "P2: what is to be deleted exists");
        assert!(
            pool.cooling.iter().is_sorted_by_key(|(_, until)| until),
            "P8: what cools down is seen in time"
        );
        let items = pool.used.len() + pool.warm.len() + pool.cooling.len() + pool.unconfirmed.len();
        let whole = (pool.groups.len() - pool.to_delete.len()) * SIZE as usize;
        assert_eq!(items, whole, "P2");
        let held: BTreeMap<u8, Item> = pool.held().map(|(item, owner)| (*owner, *item)).collect();
        assert_eq!(held, self.held, "P1");
        if pool.waiting().next().is_some() {
            let next = self.pool.next(self.now).or(self.pool.confirm_at()).is_some();
            assert!(
                self.growing.is_some() || next || self.pool.may_grow(self.now),
                "P10: nobody would wake them"
            );
        }
    }

    /// All is well and nothing happens for so long. Answers whether it grew and whether it chose what to destroy.
    pub(super) fn rest(&mut self, time: Duration) -> (bool, bool) {
        self.now += time;
        self.act(Act::Read);
        self.act(Act::Resync);
        let (mut grew, mut chose) = (false, false);
        for round in 0.. {
            assert!(round <= 4, "P6: it finds no rest");
            let before: BTreeSet<_> = self.to_delete();
            self.plan();
            grew |= self.growing.is_some();
            chose |= !self.to_delete().is_subset(&before);
            if self.growing.is_none() && self.shrinking.is_none() {
                break;
            }
            self.act(Act::Grown { made: u8::MAX, reported: u8::MAX, more: false, shortfall: None });
            self.act(Act::Shrunk { left: 0, gone: true });
        }
        (grew, chose)
    }

    fn to_delete(&self) -> BTreeSet<u32> {
        self.pool.to_delete.clone()
    }
}
