//! The state of a pool: items in use, free ones, and those that cool down.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::demand::Demand;
use super::fault::Pressure;
use super::kind::{Candidate, Kind};
use super::policy::Policy;

/// A pool of items for one key. Its caller executes what [`plan`](Self::plan) returns.
///
/// An item is in use, or free, or cools down: exactly one of these, as long as its group exists and is not to be deleted. A
/// returned item is handed out again no earlier than the cool-down after that. No two owners get one item. Times are those
/// since any moment in the past, the same for all calls.
pub struct WarmPool<K: Kind> {
    pub(super) policy: Arc<dyn Policy>,
    pub(super) cool_down: Duration,
    pub(super) groups: BTreeMap<K::Group, Group<K::Want>>,
    /// The number of groups of which all items are free.
    pub(super) whole: usize,
    /// The groups to be deleted. None of their items is in use, free or cools down.
    pub(super) to_delete: BTreeSet<K::Group>,
    /// The item that [`take`](Self::take) returns to an owner that already has one.
    pub(super) taken: BTreeMap<K::Owner, K::Item>,
    /// The items in use, each with its owners: one, except after a fault.
    pub(super) used: BTreeMap<K::Item, BTreeSet<K::Owner>>,
    /// The free items, each with the time at which it became free.
    pub(super) warm: BTreeMap<K::Item, Duration>,
    /// The items that cool down, each with the time of its end; the earliest first.
    pub(super) cooling: VecDeque<(K::Item, Duration)>,
    /// The owners that wait for an item, the longest waiting one first.
    pub(super) waiting: VecDeque<(K::Owner, K::Want)>,
    /// The attempt to create groups that is in progress.
    pub(super) growing: Option<Growing<K::Want>>,
    /// The attempt to delete groups that is in progress.
    pub(super) shrinking: Option<(u64, BTreeSet<K::Group>)>,
    pub(super) growth: Pressure,
    pub(super) decline: Pressure,
    /// The time before which no group is created, since a shared resource is exhausted.
    pub(super) blocked_until: Duration,
    pub(super) demand: Demand,
    /// The configuration of groups that are created ahead of demand.
    pub(super) wanted: K::Want,
    pub(super) draining: bool,
    /// `true` if an item was requested since the last final refusal.
    pub(super) requested: bool,
    /// The time before which groups are created for waiting owners only: those that were found at the start cool down.
    pub(super) on_demand_until: Duration,
    /// The number of the last change of the existing groups.
    pub(super) epoch: u64,
}

pub(super) struct Group<W> {
    /// The configuration; `None` if unknown.
    pub(super) config: Option<W>,
    /// `true` if its items are ready for use at once.
    pub(super) ready: bool,
    /// The value of [`WarmPool::epoch`] at its last creation or reconfiguration.
    pub(super) epoch: u64,
    /// The number of its items.
    pub(super) size: usize,
    /// The number of its free items.
    pub(super) free: usize,
}

impl<W> Group<W> {
    pub(super) fn is_wholly_free(&self) -> bool {
        self.free == self.size
    }
}

pub(super) struct Growing<W> {
    pub(super) op: u64,
    pub(super) count: usize,
    pub(super) want: W,
}

/// The answer to an owner that takes an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Take<I> {
    /// The item, as it is.
    Got(I),
    /// The item, after its group was adapted to the required configuration; see [`changed`](WarmPool::changed).
    Adapt(I),
    /// None at this moment. The owner [waits](WarmPool::waiting) until it takes one or [leaves](WarmPool::leave).
    Wait(Wait),
}

/// The reason why no item is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// More are being created, or will be as soon as the plan is made.
    Growing,
    /// Creation failed, and is repeated after this time.
    Pressed(Duration),
    /// No more may be created; one that cools down is free after this time.
    Cooling(Duration),
    /// No more may be created, and all are in use.
    Full,
    /// The pool is draining.
    Draining,
}

impl<K: Kind> WarmPool<K> {
    /// Creates an empty pool. Returned items are free again after `cool_down`.
    pub fn new(policy: Arc<dyn Policy>, cool_down: Duration) -> Self {
        Self {
            policy,
            cool_down,
            groups: BTreeMap::new(),
            whole: 0,
            to_delete: BTreeSet::new(),
            taken: BTreeMap::new(),
            used: BTreeMap::new(),
            warm: BTreeMap::new(),
            cooling: VecDeque::new(),
            waiting: VecDeque::new(),
            growing: None,
            shrinking: None,
            growth: Pressure::default(),
            decline: Pressure::default(),
            blocked_until: Duration::ZERO,
            demand: Demand::new(cool_down),
            wanted: K::Want::default(),
            draining: false,
            requested: false,
            on_demand_until: Duration::ZERO,
            epoch: 0,
        }
    }

    /// Returns an item for `owner`: always the same one until the owner returns it.
    pub fn take(&mut self, owner: &K::Owner, want: &K::Want, now: Duration) -> Take<K::Item> {
        self.tick(now);
        let item = if let Some(item) = self.taken.get(owner) {
            item.clone()
        } else {
            (self.requested, self.wanted) = (true, want.clone());
            if let Some((_, wanted)) = self.waiting.iter_mut().find(|(waiting, _)| waiting == owner) {
                want.clone_into(wanted);
            } else {
                self.demand.add(now);
                self.waiting.push_back((owner.clone(), want.clone()));
            }
            let Some(item) = self.choose(want) else { return Take::Wait(self.reason(now)) };
            self.leave(owner);
            self.unfree(&item);
            self.used.insert(item.clone(), [owner.clone()].into());
            self.taken.insert(owner.clone(), item.clone());
            item
        };
        match self.groups.get_mut(&K::group(&item)) {
            Some(group) if group.config.as_ref() != Some(want) => {
                group.config = None;
                Take::Adapt(item)
            }
            _ => Take::Got(item),
        }
    }

    /// Records that the configuration of a group was changed, or with `None` that it is unknown, as during a change.
    pub fn changed(&mut self, group: &K::Group, config: Option<&K::Want>) {
        self.epoch += 1;
        if let Some(group) = self.groups.get_mut(group) {
            (group.config, group.epoch) = (config.cloned(), self.epoch);
        }
    }

    /// Records whether the items of a group are ready for use at once.
    pub fn ready(&mut self, group: &K::Group, ready: bool) {
        if let Some(group) = self.groups.get_mut(group) {
            group.ready = ready;
        }
    }

    /// Removes and returns the owners that wait for an item with the configuration `want`, which the external system refused.
    pub fn dismiss(&mut self, want: &K::Want) -> Vec<K::Owner> {
        let all = std::mem::take(&mut self.waiting);
        let (dismissed, waiting): (Vec<_>, _) = all.into_iter().partition(|(_, other)| other == want);
        self.waiting = waiting.into();
        dismissed.into_iter().map(|(owner, _)| owner).collect()
    }

    /// Ends the waiting of `owner`.
    pub fn leave(&mut self, owner: &K::Owner) {
        self.waiting.retain(|(waiting, _)| waiting != owner);
    }

    /// Returns `item`, which cools down when its last owner returns it. Returns `false` if `owner` does not own it.
    pub fn give_back(&mut self, owner: &K::Owner, item: &K::Item, now: Duration) -> bool {
        match self.release(owner, item) {
            Some(true) => self.cool(item.clone(), now),
            Some(false) => {}
            None => return false,
        }
        true
    }

    /// Undoes [`take`](Self::take) for an owner that never learnt of its item: the item is free at once, or the owner waits no
    /// longer. Returns the item.
    pub fn put_back(&mut self, owner: &K::Owner, now: Duration) -> Option<K::Item> {
        self.leave(owner);
        let item = self.taken.get(owner).cloned()?;
        if self.release(owner, &item) == Some(true) {
            self.free_up(item.clone(), now);
        }
        Some(item)
    }

    /// Ends the ownership. Returns `true` if the item has no owner any more, `None` if `owner` was none.
    fn release(&mut self, owner: &K::Owner, item: &K::Item) -> Option<bool> {
        let owners = self.used.get_mut(item)?;
        if !owners.remove(owner) {
            return None;
        }
        let last = owners.is_empty();
        if last {
            self.used.remove(item);
        }
        self.forget(owner, item);
        Some(last)
    }

    /// Lets `owner` take another item, if it had taken `item`.
    pub(super) fn forget(&mut self, owner: &K::Owner, item: &K::Item) {
        if self.taken.get(owner) == Some(item) {
            self.taken.remove(owner);
        }
    }

    /// Makes the item of an existing group free.
    pub(super) fn free_up(&mut self, item: K::Item, since: Duration) {
        if let Some(group) = self.groups.get_mut(&K::group(&item)) {
            group.free += 1;
            self.whole += usize::from(group.is_wholly_free());
        }
        self.warm.insert(item, since);
    }

    /// Takes the item out of the free ones, and returns whether it was one.
    pub(super) fn unfree(&mut self, item: &K::Item) -> bool {
        let was_free = self.warm.remove(item).is_some();
        if let Some(group) = self.groups.get_mut(&K::group(item)).filter(|_| was_free) {
            self.whole -= usize::from(group.is_wholly_free());
            group.free -= 1;
        }
        was_free
    }

    /// Lets the item cool down from now on.
    pub(super) fn cool(&mut self, item: K::Item, now: Duration) {
        self.cooling.push_back((item, now + self.cool_down));
    }

    /// Takes an item that no owner has out of the pool. Returns whether there was one.
    pub(super) fn withdraw(&mut self, item: &K::Item) -> bool {
        let before = self.cooling.len();
        self.unfree(item) || {
            self.cooling.retain(|(cooling, _)| cooling != item);
            self.cooling.len() < before
        }
    }

    /// Ends the cool-downs that are over. Returns the owners that need wait no longer: an item is free for them, or none is
    /// being created.
    pub fn tick(&mut self, now: Duration) -> Vec<(K::Owner, K::Want)> {
        while self.cooling.front().is_some_and(|(_, until)| *until <= now)
            && let Some((item, until)) = self.cooling.pop_front()
        {
            self.free_up(item, until);
        }
        let served = if self.growing.is_some() || self.may_grow(now) { self.free() } else { usize::MAX };
        self.waiting.iter().take(served).cloned().collect()
    }

    /// Returns the owners that wait for an item, with the required configuration, the longest waiting one first.
    pub fn waiting(&self) -> impl Iterator<Item = (&K::Owner, &K::Want)> {
        self.waiting.iter().map(|(owner, want)| (owner, want))
    }

    /// Returns all items in use, each with its owner.
    pub fn held(&self) -> impl Iterator<Item = (&K::Item, &K::Owner)> {
        self.used.iter().flat_map(|(item, owners)| owners.iter().map(move |owner| (item, owner)))
    }

    /// Returns `true` if the item is in use.
    pub fn is_used(&self, item: &K::Item) -> bool {
        self.used.contains_key(item)
    }

    /// Returns the reason why owners wait.
    pub fn reason(&self, now: Duration) -> Wait {
        let cooled = self.cooling.front().map(|(_, until)| until.saturating_sub(now));
        match self.pressed(now) {
            _ if self.draining => Wait::Draining,
            _ if self.growing.is_some() => Wait::Growing,
            Some(remaining) => Wait::Pressed(cooled.map_or(remaining, |cooled| cooled.min(remaining))),
            None if self.may_grow(now) => Wait::Growing,
            None => cooled.map_or(Wait::Full, Wait::Cooling),
        }
    }

    /// Returns the free item of the least rank.
    fn choose(&self, want: &K::Want) -> Option<K::Item> {
        let free = self.warm.iter().filter(|_| !self.draining).filter_map(|(item, since)| {
            let name = K::group(item);
            let group = self.groups.get(&name)?;
            let (fits, ready) = (group.config.as_ref() == Some(want), group.ready);
            let candidate = Candidate { group: &name, free: group.free, fits, ready, since: *since };
            Some((K::rank(&candidate), item))
        });
        free.min().map(|(_, item)| item.clone())
    }
}
