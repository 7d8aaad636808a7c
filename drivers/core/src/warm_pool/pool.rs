//! One pool: who holds what, what is free, what cools down.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::demand::Demand;
use super::fault::Pressure;
use super::kind::{Candidate, Kind};
use super::policy::Policy;

/// The items of one key. It is told the time, decides, and does nothing: what it wants done, [`plan`](Self::plan) says.
///
/// An item is held, or free, or cools down: exactly one of these, as long as its group exists. An item that was given back
/// is handed out again no earlier than the cool-down after that. No two owners are given one item. Times are those since
/// any moment in the past, the same for all calls.
pub struct WarmPool<K: Kind> {
    pub(super) policy: Arc<dyn Policy>,
    pub(super) cool_down: Duration,
    pub(super) groups: BTreeMap<K::Group, Group<K>>,
    /// What [`take`](Self::take) answers to an owner who has taken already.
    pub(super) taken: BTreeMap<K::Owner, K::Item>,
    pub(super) used: BTreeMap<K::Item, Used<K>>,
    pub(super) warm: BTreeMap<K::Item, Warm<K>>,
    pub(super) cooling: BTreeMap<K::Item, Cooling<K>>,
    /// No item has cooled down earlier than this.
    pub(super) coolest: Duration,
    /// How many groups there are of which all items are free.
    pub(super) whole: usize,
    /// How many groups are to be destroyed.
    pub(super) doomed: usize,
    /// Who waits for an item, the longest waiting one first.
    pub(super) waiting: VecDeque<(K::Owner, K::Want)>,
    pub(super) growing: Option<Growing<K>>,
    /// The attempt to destroy what is doomed, while it is under way.
    pub(super) shrinking: Option<(u64, BTreeSet<K::Group>)>,
    pub(super) growth: Pressure,
    /// Until then others know that there is no more to be had.
    pub(super) barred: Duration,
    pub(super) decline: Pressure,
    pub(super) demand: Demand,
    /// How the groups are wanted that are made ahead of demand.
    pub(super) wanted: K::Want,
    pub(super) draining: bool,
    /// Whether anybody asked for an item, since there was none to be had for good.
    pub(super) asked: bool,
    /// Until then nothing is made but for those who wait: what was found at the start cools down.
    pub(super) calm_until: Duration,
    /// Counts all that changes which groups there are: the number of the last change.
    pub(super) epoch: u64,
}

pub(super) struct Group<K: Kind> {
    /// How it is; none when nobody knows.
    pub(super) tag: Option<K::Want>,
    /// Whether its items are ready for use at once.
    pub(super) ready: bool,
    /// When it was made or adapted last.
    pub(super) touched: u64,
    /// It is to be destroyed, and none of its items is handed out any more.
    pub(super) doomed: bool,
    /// How many items it has, and how many of them are free.
    pub(super) size: usize,
    free: usize,
}

impl<K: Kind> Group<K> {
    /// A group of which no item is free yet.
    pub(super) fn new(tag: &K::Want, ready: bool, touched: u64, size: usize) -> Self {
        Self { tag: Some(tag.clone()), ready, touched, doomed: false, size, free: 0 }
    }

    pub(super) fn is_wholly_free(&self) -> bool {
        self.free == self.size
    }
}

pub(super) struct Used<K: Kind> {
    pub(super) group: K::Group,
    /// One, unless somebody else made it more.
    pub(super) owners: BTreeSet<K::Owner>,
}

pub(super) struct Warm<K: Kind> {
    pub(super) group: K::Group,
    pub(super) since: Duration,
}

pub(super) struct Cooling<K: Kind> {
    pub(super) group: K::Group,
    pub(super) until: Duration,
}

pub(super) struct Growing<K: Kind> {
    pub(super) op: u64,
    pub(super) count: usize,
    pub(super) want: K::Want,
}

/// What came of a release.
enum Release<G> {
    /// The owner did not hold the item.
    NotHeld,
    /// Somebody else still holds it.
    Shared,
    /// Nobody holds it any more; this is its group.
    Last(G),
}

/// The answer to who takes an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Take<I> {
    /// This one, as it is.
    Got(I),
    /// This one, once its group is adapted; [`adapted`](WarmPool::adapted) tells what came of that.
    Adapt(I),
    /// None at this moment. Who asks is remembered, and [`waiting`](WarmPool::waiting) until it takes or leaves.
    Wait(Wait),
}

/// Why there is no item at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// More are being made, or will be as soon as the plan is made.
    Growing,
    /// The other world failed, and is asked again after this time.
    Pressed(Duration),
    /// There may be no more; one that cools down is free after this time.
    Cooling(Duration),
    /// There may be no more, and all are held.
    Full,
    /// The pool is given up.
    Draining,
}

impl<K: Kind> WarmPool<K> {
    /// An empty pool, the size of which `policy` says. What is given back rests for `cool_down`.
    pub fn new(policy: Arc<dyn Policy>, cool_down: Duration) -> Self {
        Self {
            policy,
            cool_down,
            groups: BTreeMap::new(),
            taken: BTreeMap::new(),
            used: BTreeMap::new(),
            warm: BTreeMap::new(),
            cooling: BTreeMap::new(),
            coolest: Duration::ZERO,
            whole: 0,
            doomed: 0,
            waiting: VecDeque::new(),
            growing: None,
            shrinking: None,
            growth: Pressure::default(),
            barred: Duration::ZERO,
            decline: Pressure::default(),
            demand: Demand::new(cool_down),
            wanted: K::Want::default(),
            draining: false,
            asked: false,
            calm_until: Duration::ZERO,
            epoch: 0,
        }
    }

    /// An item for `owner`: always the same one until it gives that back.
    pub fn take(&mut self, owner: &K::Owner, want: &K::Want, now: Duration) -> Take<K::Item> {
        if let Some(item) = self.taken.get(owner) {
            let group = self.used.get(item).map(|used| &used.group);
            let fits = group.is_some_and(|group| self.fits(group, want));
            return if fits { Take::Got(item.clone()) } else { Take::Adapt(item.clone()) };
        }
        self.tick(now);
        if self.waiting.iter().all(|(waiting, _)| waiting != owner) {
            self.demand.asked(now);
        }
        (self.asked, self.wanted) = (true, want.clone());
        let Some((item, fits)) = self.choose(want) else {
            self.wait(owner, want);
            return Take::Wait(self.reason(now));
        };
        let Some(group) = self.unfree(&item) else { unreachable!("it was chosen just now") };
        self.leave(owner);
        if !fits && let Some(group) = self.groups.get_mut(&group) {
            group.tag = None;
        }
        self.used.insert(item.clone(), Used { group, owners: BTreeSet::from([owner.clone()]) });
        self.taken.insert(owner.clone(), item.clone());
        if fits { Take::Got(item) } else { Take::Adapt(item) }
    }

    /// The group of an item that was to be adapted is as `want` says, or nobody knows how it is.
    pub fn adapted(&mut self, item: &K::Item, want: Option<&K::Want>) {
        let group = self.used.get(item).map(|used| used.group.clone());
        if let Some(group) = group {
            self.changed(&group, want);
        }
    }

    /// A group is as `want` says from now on, or nobody knows how it is, whoever changed it and whether or not it is in use.
    pub fn changed(&mut self, group: &K::Group, want: Option<&K::Want>) {
        self.epoch += 1;
        if let Some(group) = self.groups.get_mut(group) {
            (group.tag, group.touched) = (want.cloned(), self.epoch);
        }
    }

    /// Nobody waits any more for an item of a group that is as `want` says, for there is none to be had. Answers who did.
    pub fn dismiss(&mut self, want: &K::Want) -> Vec<K::Owner> {
        let (dismissed, stay): (VecDeque<_>, _) =
            std::mem::take(&mut self.waiting).into_iter().partition(|(_, waiting)| waiting == want);
        self.waiting = stay;
        dismissed.into_iter().map(|(owner, _)| owner).collect()
    }

    /// `owner` waits for nothing any more.
    pub fn leave(&mut self, owner: &K::Owner) {
        self.waiting.retain(|(waiting, _)| waiting != owner);
    }

    /// `owner` holds `item` no more; it cools down when nobody else does. Answers whether `owner` held it.
    pub fn give_back(&mut self, owner: &K::Owner, item: &K::Item, now: Duration) -> bool {
        match self.release(owner, item) {
            Release::NotHeld => return false,
            Release::Shared => {}
            Release::Last(group) => {
                self.cool(item.clone(), group, now);
            }
        }
        true
    }

    /// `owner` was handed `item` and never learnt of it: it is free at once.
    pub fn put_back(&mut self, owner: &K::Owner, item: &K::Item, now: Duration) {
        if let Release::Last(group) = self.release(owner, item) {
            self.free_up(item.clone(), group, now);
        }
    }

    /// The item of a group that exists is free from now on.
    pub(super) fn free_up(&mut self, item: K::Item, name: K::Group, since: Duration) {
        if let Some(group) = self.groups.get_mut(&name) {
            group.free += 1;
            self.whole += usize::from(group.is_wholly_free());
        }
        self.warm.insert(item, Warm { group: name, since });
    }

    /// The item is free no more, if it was. Answers its group.
    pub(super) fn unfree(&mut self, item: &K::Item) -> Option<K::Group> {
        let Warm { group: name, .. } = self.warm.remove(item)?;
        if let Some(group) = self.groups.get_mut(&name) {
            self.whole -= usize::from(group.is_wholly_free());
            group.free -= 1;
        }
        Some(name)
    }

    /// The item cools down from now on.
    pub(super) fn cool(&mut self, item: K::Item, group: K::Group, now: Duration) {
        let until = now + self.cool_down;
        self.coolest = if self.cooling.is_empty() { until } else { self.coolest.min(until) };
        self.cooling.insert(item, Cooling { group, until });
    }

    /// When the first item has cooled down, at the earliest.
    pub(super) fn coolest(&self) -> Option<Duration> {
        (!self.cooling.is_empty()).then_some(self.coolest)
    }

    /// The group is to be destroyed; none of its items is free or cools down.
    pub(super) fn condemn(&mut self, name: &K::Group) {
        if let Some(group) = self.groups.get_mut(name) {
            self.doomed += usize::from(!group.doomed);
            group.doomed = true;
        }
    }

    /// The group does not exist any more; none of its items is free.
    pub(super) fn drop_group(&mut self, name: &K::Group) {
        if let Some(group) = self.groups.remove(name) {
            self.doomed -= usize::from(group.doomed);
        }
    }

    fn release(&mut self, owner: &K::Owner, item: &K::Item) -> Release<K::Group> {
        let Some(used) = self.used.get_mut(item) else { return Release::NotHeld };
        if !used.owners.remove(owner) {
            return Release::NotHeld;
        }
        let last = used.owners.is_empty();
        if self.taken.get(owner) == Some(item) {
            self.taken.remove(owner);
        }
        let used = if last { self.used.remove(item) } else { None };
        used.map_or(Release::Shared, |used| Release::Last(used.group))
    }

    /// Lets the items that have cooled down be free. Answers those who wait and need wait no longer: an item is free for
    /// them, or none is being made.
    pub fn tick(&mut self, now: Duration) -> Vec<K::Owner> {
        if self.coolest().is_some_and(|coolest| coolest <= now) {
            let cooled = self.cooling.iter().filter(|(_, cooling)| cooling.until <= now);
            let cooled: Vec<_> = cooled.map(|(item, _)| item.clone()).collect();
            for item in cooled {
                if let Some(Cooling { group, until }) = self.cooling.remove(&item) {
                    self.free_up(item, group, until);
                }
            }
            self.coolest = self.cooling.values().map(|cooling| cooling.until).min().unwrap_or_default();
        }
        let served = if self.growing.is_some() || self.may_grow(now) { self.free() } else { usize::MAX };
        self.waiting.iter().take(served).map(|(owner, _)| owner.clone()).collect()
    }

    /// An item of that group was found to be ready for use at once, or not to be.
    pub fn ready(&mut self, group: &K::Group, ready: bool) {
        if let Some(group) = self.groups.get_mut(group) {
            group.ready = ready;
        }
    }

    /// Who waits for an item, and how it is wanted, the longest waiting one first.
    pub fn waiting(&self) -> impl Iterator<Item = (&K::Owner, &K::Want)> {
        self.waiting.iter().map(|(owner, want)| (owner, want))
    }

    /// Who holds `item`.
    pub fn owners(&self, item: &K::Item) -> impl Iterator<Item = &K::Owner> {
        self.used.get(item).into_iter().flat_map(|used| &used.owners)
    }

    /// All items that are held, each with who holds it.
    pub fn held(&self) -> impl Iterator<Item = (&K::Item, &K::Owner)> {
        self.used.iter().flat_map(|(item, used)| used.owners.iter().map(move |owner| (item, owner)))
    }

    /// Why whoever waits does so.
    pub fn reason(&self, now: Duration) -> Wait {
        let coolest = self.coolest().map(|coolest| coolest.saturating_sub(now));
        match self.pressed(now) {
            _ if self.draining => Wait::Draining,
            _ if self.growing.is_some() => Wait::Growing,
            Some(remaining) => Wait::Pressed(coolest.map_or(remaining, |coolest| coolest.min(remaining))),
            None if self.may_grow(now) => Wait::Growing,
            None => coolest.map_or(Wait::Full, Wait::Cooling),
        }
    }

    /// The free item of the least rank, and whether its group is as it is wanted.
    fn choose(&self, want: &K::Want) -> Option<(K::Item, bool)> {
        if self.draining {
            return None;
        }
        let candidates = self.warm.iter().filter_map(|(item, warm)| {
            let group = self.groups.get(&warm.group).filter(|group| !group.doomed)?;
            let (fits, ready, free) = (group.tag.as_ref() == Some(want), group.ready, group.free);
            let rank = K::rank(&Candidate { group: &warm.group, free, fits, ready, since: warm.since });
            Some((rank, item, fits))
        });
        let least = candidates.min_by(|(one, a, _), (other, b, _)| one.cmp(other).then_with(|| a.cmp(b)));
        least.map(|(_, item, fits)| (item.clone(), fits))
    }

    fn fits(&self, group: &K::Group, want: &K::Want) -> bool {
        self.groups.get(group).is_some_and(|group| group.tag.as_ref() == Some(want))
    }

    fn wait(&mut self, owner: &K::Owner, want: &K::Want) {
        match self.waiting.iter_mut().find(|(waiting, _)| waiting == owner) {
            Some((_, wanted)) => want.clone_into(wanted),
            None => self.waiting.push_back((owner.clone(), want.clone())),
        }
    }
}
