//! The state of a warm pool: the items in use, the free items, and those in their cool-down.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::attempt::AttemptBackoff;
use super::demand::Demand;
use super::policy::SizePolicy;
use super::{Candidate, PoolKind};

/// A pool of interchangeable items. The caller executes the actions that [`plan`](Self::plan) returns.
///
/// While its group exists and is not to be deleted, an item is either in use, or free, or in its cool-down. A returned item is
/// not handed out before its cool-down has ended. An item that a listing found is handed out when it was [confirmed](Self::confirm), too.
/// Two owners never get the same item. All times are durations since the same moment, the creation of the pool or one shortly before.
pub struct WarmPool<K: PoolKind> {
    /// The policy that decides when to create and delete groups.
    pub(super) policy: Arc<dyn SizePolicy>,
    /// The time for which a returned item is not handed out again.
    pub(super) cool_down: Duration,
    /// The groups that exist, by name.
    pub(super) groups: BTreeMap<K::Group, Group<K::Want>>,
    /// The number of groups whose items are all free.
    pub(super) whole: usize,
    /// The groups to delete. Their items are neither in use, nor free, nor in their cool-down.
    pub(super) to_delete: BTreeSet<K::Group>,
    /// The item that each owner took. [`take`](Self::take) returns it again until the owner returns it.
    pub(super) taken: BTreeMap<K::Owner, K::Item>,
    /// The items in use, each with its owners. An item with several owners was assigned twice, which is reported as a fault.
    pub(super) used: BTreeMap<K::Item, BTreeSet<K::Owner>>,
    /// The free items, which can be handed out at once, each with the time at which it became free.
    pub(super) warm: BTreeMap<K::Item, Duration>,
    /// The items in their cool-down, each with the time at which it ends; the earliest first.
    pub(super) cooling: VecDeque<(K::Item, Duration)>,
    /// The items in a cool-down that only [`confirm`](Self::confirm) ends, each with the time from which on it may.
    pub(super) unconfirmed: BTreeMap<K::Item, Duration>,
    /// `true` from the first listing that found items until the first confirmation.
    pub(super) is_starting: bool,
    /// The owners that wait for an item, with the configurations that they require; the longest waiting owner first.
    pub(super) waiting: VecDeque<(K::Owner, K::Want)>,
    /// The creation of groups that is in progress; `None` if no groups are being created.
    pub(super) growing: Option<Growing<K::Want>>,
    /// The deletion of groups that is in progress: the id of the action, and the groups; `None` if no groups are being deleted.
    pub(super) shrinking: Option<(u64, BTreeSet<K::Group>)>,
    /// The back-off after failed attempts to create groups.
    pub(super) growth_backoff: AttemptBackoff,
    /// The back-off after failed attempts to delete groups.
    pub(super) deletion_backoff: AttemptBackoff,
    /// The time before which no groups are created, because a shared resource is exhausted.
    pub(super) blocked_until: Duration,
    /// The counter of recent requests for items.
    pub(super) demand: Demand,
    /// The configuration of groups that are created ahead of demand: that of the last request.
    pub(super) wanted: K::Want,
    /// `true` if the pool is being emptied and hands out no items.
    pub(super) draining: bool,
    /// `true` if an item was requested since creation last failed with [`Shortfall::Refused`](super::Shortfall::Refused).
    pub(super) requested: bool,
    /// The time before which groups are created for waiting owners only, because items that were found at the start are still in
    /// their cool-down. If they are confirmed later, that ends then.
    pub(super) on_demand_until: Duration,
    /// The number of changes of the groups so far. It also numbers the actions.
    pub(super) epoch: u64,
}

/// A group that exists in the external system.
pub(super) struct Group<W> {
    /// The configuration of the group; `None` if it is unknown, as during a change.
    pub(super) config: Option<W>,
    /// `true` if an owner can use the items at once, as with active VIFs. Other items can be handed out, too; the owner then waits.
    pub(super) ready: bool,
    /// The value of [`WarmPool::epoch`] at the last creation or reconfiguration of the group.
    pub(super) epoch: u64,
    /// The number of items in the group.
    pub(super) size: usize,
    /// The number of free items in the group.
    pub(super) free: usize,
}

impl<W> Group<W> {
    /// Returns `true` if no item of the group is in use or in its cool-down.
    pub(super) fn is_wholly_free(&self) -> bool {
        self.free == self.size
    }
}

/// A creation of groups that is in progress.
pub(super) struct Growing<W> {
    /// The id of the action [`Grow`](super::Action::Grow), by which its result is recognized.
    pub(super) op: u64,
    /// The number of groups of the action that are still being created.
    pub(super) count: usize,
    /// The configuration of the groups.
    pub(super) want: W,
}

/// The result of a request for an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Take<I> {
    /// The item was taken, and its group has the required configuration.
    Got(I),
    /// The item was taken, but its group (the items that the pool creates and deletes together) has another or an unknown configuration.
    /// Before it uses the item, the caller must give the group the required configuration and report that to `changed`.
    Adapt(I),
    /// No item is available now. The owner [waits](WarmPool::waiting) until it takes an item or [leaves](WarmPool::leave).
    Wait(Wait),
}

/// The reason why no item is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Groups are being created, or the next [`plan`](WarmPool::plan) creates some.
    Growing,
    /// The creation of groups failed, or is blocked. An item may be available after this delay.
    BackingOff(Duration),
    /// The policy creates no more groups. The first item to end its cool-down is free after this delay.
    Cooling(Duration),
    /// The policy creates no more groups, and all items are in use.
    Full,
    /// The pool is [draining](WarmPool::drain): it hands out nothing.
    Draining,
}

impl<K: PoolKind> WarmPool<K> {
    /// Creates an empty pool. Returned items are free again after the time `cool_down`.
    pub fn new(policy: Arc<dyn SizePolicy>, cool_down: Duration) -> Self {
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
            unconfirmed: BTreeMap::new(),
            is_starting: false,
            waiting: VecDeque::new(),
            growing: None,
            shrinking: None,
            growth_backoff: AttemptBackoff::default(),
            deletion_backoff: AttemptBackoff::default(),
            blocked_until: Duration::ZERO,
            demand: Demand::new(cool_down),
            wanted: K::Want::default(),
            draining: false,
            requested: false,
            on_demand_until: Duration::ZERO,
            epoch: 0,
        }
    }

    /// Takes an item for `owner`, which requires the configuration `want` of its group. An owner that holds an item already gets the same
    /// one again, until it returns it. If no item is free, the owner waits.
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
            self.remove_free(&item);
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

    /// Records that the configuration of a group was changed; `None` means that it is unknown, as during a change.
    pub fn changed(&mut self, group: &K::Group, config: Option<&K::Want>) {
        self.epoch += 1;
        if let Some(group) = self.groups.get_mut(group) {
            (group.config, group.epoch) = (config.cloned(), self.epoch);
        }
    }

    /// Records that an owner can use the items of a group at once (`ready` is `true`), as with active VIFs, or cannot (`false`).
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

    /// Removes `owner` from the owners that wait for an item.
    pub fn leave(&mut self, owner: &K::Owner) {
        self.waiting.retain(|(waiting, _)| waiting != owner);
    }

    /// Returns `item` to the pool. Its cool-down starts when its last owner has returned it. Returns `false` if `owner` does not
    /// hold it.
    pub fn give_back(&mut self, owner: &K::Owner, item: &K::Item, now: Duration) -> bool {
        match self.release(owner, item) {
            Some(true) => self.start_cool_down(item.clone(), now),
            Some(false) => {}
            None => return false,
        }
        true
    }

    /// Undoes [`take`](Self::take) for an owner that did not receive the result. The owner stops waiting, or its item is free at
    /// once, without a cool-down. Returns the item; `None` if the owner had none.
    pub fn undo_take(&mut self, owner: &K::Owner, now: Duration) -> Option<K::Item> {
        self.leave(owner);
        let item = self.taken.get(owner).cloned()?;
        if self.release(owner, &item) == Some(true) {
            self.add_free(item.clone(), now);
        }
        Some(item)
    }

    /// Removes `owner` from the owners of the item. Returns `true` if no owner is left, and `None` if `owner` did not hold the
    /// item.
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

    /// Forgets that `owner` took `item`, so that its next request gets another item. Does nothing if it took another one.
    pub(super) fn forget(&mut self, owner: &K::Owner, item: &K::Item) {
        if self.taken.get(owner) == Some(item) {
            self.taken.remove(owner);
        }
    }

    /// Adds an item to the free items. `since` is the time at which it became free.
    pub(super) fn add_free(&mut self, item: K::Item, since: Duration) {
        if let Some(group) = self.groups.get_mut(&K::group(&item)) {
            group.free += 1;
            self.whole += usize::from(group.is_wholly_free());
        }
        self.warm.insert(item, since);
    }

    /// Removes an item from the free items, if it is one of them. Returns `true` if it was free.
    pub(super) fn remove_free(&mut self, item: &K::Item) -> bool {
        let was_free = self.warm.remove(item).is_some();
        if let Some(group) = self.groups.get_mut(&K::group(item)).filter(|_| was_free) {
            self.whole -= usize::from(group.is_wholly_free());
            group.free -= 1;
        }
        was_free
    }

    /// Puts an item into its cool-down, which starts at the time `now`.
    pub(super) fn start_cool_down(&mut self, item: K::Item, now: Duration) {
        self.cooling.push_back((item, now + self.cool_down));
    }

    /// Removes a free item, or one in its cool-down. Returns `false` if the item is neither.
    pub(super) fn remove_idle(&mut self, item: &K::Item) -> bool {
        let before = self.cooling.len();
        self.remove_free(item) || self.unconfirmed.remove(item).is_some() || {
            self.cooling.retain(|(cooling, _)| cooling != item);
            self.cooling.len() < before
        }
    }

    /// Ends the cool-downs that are over. Returns the owners that need not wait any longer, with the configurations that they require:
    /// either an item is free for them, or no items are being created, nor can be now.
    pub fn tick(&mut self, now: Duration) -> Vec<(K::Owner, K::Want)> {
        while self.cooling.front().is_some_and(|(_, until)| *until <= now)
            && let Some((item, until)) = self.cooling.pop_front()
        {
            self.add_free(item, until);
        }
        let served = if self.growing.is_some() || self.may_grow(now) { self.free() } else { usize::MAX };
        self.waiting.iter().take(served).cloned().collect()
    }

    /// Returns the owners that wait for an item, each with the configuration that it requires; the longest waiting owner first.
    pub fn waiting(&self) -> impl Iterator<Item = (&K::Owner, &K::Want)> {
        self.waiting.iter().map(|(owner, want)| (owner, want))
    }

    /// Returns all items in use, each with an owner. An item with several owners is returned for each of them.
    pub fn held(&self) -> impl Iterator<Item = (&K::Item, &K::Owner)> {
        self.used.iter().flat_map(|(item, owners)| owners.iter().map(move |owner| (item, owner)))
    }

    /// Returns `true` if the item is in use, that is, if an owner holds it.
    pub fn is_used(&self, item: &K::Item) -> bool {
        self.used.contains_key(item)
    }

    /// Returns the reason why no item is available, with the delay after which one may be, if it is known.
    pub fn reason(&self, now: Duration) -> Wait {
        // The read that confirms it may have begun.
        let found = self.confirm_at().map(|until| until.max(now + Duration::from_secs(1)));
        let cooled = self.cooling.front().map(|(_, until)| *until).into_iter().chain(found).min();
        let cooled = cooled.map(|until| until.saturating_sub(now));
        match self.growth_delay(now) {
            _ if self.draining => Wait::Draining,
            _ if self.growing.is_some() => Wait::Growing,
            Some(remaining) => Wait::BackingOff(cooled.map_or(remaining, |cooled| cooled.min(remaining))),
            None if self.may_grow(now) || !self.to_delete.is_empty() => Wait::Growing,
            None => cooled.map_or(Wait::Full, Wait::Cooling),
        }
    }

    /// Returns the free item with the lowest rank for the configuration `want`; `None` if no item can be handed out.
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
