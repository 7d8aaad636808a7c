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
    /// Who waits for an item, the longest waiting one first.
    pub(super) waiting: VecDeque<(K::Owner, K::Want)>,
    pub(super) growing: Option<Growing<K>>,
    /// The attempt to destroy what is doomed, while it is under way.
    pub(super) shrinking: Option<(u64, BTreeSet<K::Group>)>,
    pub(super) growth: Pressure,
    pub(super) decline: Pressure,
    pub(super) demand: Demand,
    /// How the groups are wanted that are made ahead of demand.
    pub(super) wanted: K::Want,
    pub(super) draining: bool,
    /// Whether anybody ever asked for an item.
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
            waiting: VecDeque::new(),
            growing: None,
            shrinking: None,
            growth: Pressure::default(),
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
        let Some(Warm { group, .. }) = self.warm.remove(&item) else {
            unreachable!("it was chosen just now")
        };
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
                self.cooling.insert(item.clone(), Cooling { group, until: now + self.cool_down });
            }
        }
        true
    }

    /// `owner` was handed `item` and never learnt of it: it is free at once.
    pub fn put_back(&mut self, owner: &K::Owner, item: &K::Item, now: Duration) {
        if let Release::Last(group) = self.release(owner, item) {
            self.warm.insert(item.clone(), Warm { group, since: now });
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
        let cooled = self.cooling.iter().filter(|(_, cooling)| cooling.until <= now);
        let cooled: Vec<_> = cooled.map(|(item, _)| item.clone()).collect();
        for item in cooled {
            if let Some(Cooling { group, until }) = self.cooling.remove(&item) {
                self.warm.insert(item, Warm { group, since: until });
            }
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
        let coolest = self.cooling.values().map(|cooling| cooling.until.saturating_sub(now)).min();
        match self.growth.remaining(now) {
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
        let mut free: BTreeMap<&K::Group, usize> = BTreeMap::new();
        for warm in self.warm.values() {
            *free.entry(&warm.group).or_default() += 1;
        }
        let candidates = self.warm.iter().filter_map(|(item, warm)| {
            let group = self.groups.get(&warm.group).filter(|group| !group.doomed)?;
            let (fits, ready) = (group.tag.as_ref() == Some(want), group.ready);
            let free = free.get(&warm.group).copied().unwrap_or_default();
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
