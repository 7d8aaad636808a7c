//! What a pool wants done, and what came of it.

use std::time::Duration;

use super::fault::{Fault, Grown, Pressure};
use super::kind::Kind;
use super::policy::{Counts, Plan};
use super::pool::{Group, Growing, WarmPool};

/// What a pool wants done in the other world. At most one of each is under way at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<G, W> {
    /// Make so many groups that are as they are wanted; [`WarmPool::grown`] takes in what came of it.
    Grow {
        /// By which the answer is known again.
        op: u64,
        /// How many.
        count: usize,
        /// How.
        want: W,
    },
    /// Destroy these groups; [`WarmPool::shrunk`] takes in what came of it.
    Shrink {
        /// By which the answer is known again.
        op: u64,
        /// Which.
        groups: Vec<G>,
    },
}

impl<K: Kind> WarmPool<K> {
    /// The next thing to do; none when there is nothing, or what there is is under way.
    pub fn plan(&mut self, now: Duration) -> Option<Action<K::Group, K::Want>> {
        self.tick(now);
        let planned =
            if self.draining { Plan::Shrink(usize::MAX) } else { self.policy.plan(&self.counts(now)) };
        match planned {
            Plan::Grow(count) if self.growing.is_none() && self.pressed(now).is_none() => {
                self.epoch += 1;
                let want = self.waiting.front().map_or(&self.wanted, |(_, want)| want).clone();
                self.growing = Some(Growing { op: self.epoch, count, want: want.clone() });
                return Some(Action::Grow { op: self.epoch, count, want });
            }
            Plan::Shrink(count) if self.shrinking.is_none() => self.doom(count),
            _ => {}
        }
        self.shrink(now)
    }

    /// For how long the other world must not be asked for more.
    pub(super) fn pressed(&self, now: Duration) -> Option<Duration> {
        let barred = self.barred.checked_sub(now).filter(|barred| !barred.is_zero());
        self.growth.remaining(now).max(barred)
    }

    /// Asks for no more before that time, for others know that there is none to be had; a time that has passed bars nothing.
    pub fn bar(&mut self, until: Duration) {
        self.barred = until;
    }

    /// There is more to be had again: what was learnt of that is forgotten.
    pub fn relieve(&mut self) {
        (self.growth, self.barred) = (Pressure::default(), Duration::ZERO);
    }

    /// Whether anybody asked for an item since there was none to be had for good.
    pub fn is_asked(&self) -> bool {
        self.asked
    }

    /// Chooses `count` groups of which all items are free, the last in order, and lets them be destroyed.
    fn doom(&mut self, count: usize) {
        let whole = self.groups.iter().rev().filter(|(_, group)| group.is_wholly_free());
        let chosen: Vec<_> = whole.map(|(name, _)| name.clone()).take(count).collect();
        for name in chosen {
            for item in K::items(&name) {
                self.unfree(&item);
            }
            self.condemn(&name);
        }
    }

    fn shrink(&mut self, now: Duration) -> Option<Action<K::Group, K::Want>> {
        if self.doomed == 0 || self.shrinking.is_some() || self.decline.remaining(now).is_some() {
            return None;
        }
        let doomed = self.groups.iter().filter(|(_, group)| group.doomed);
        let groups: Vec<_> = doomed.map(|(name, _)| name.clone()).collect();
        self.epoch += 1;
        self.shrinking = Some((self.epoch, groups.iter().cloned().collect()));
        Some(Action::Shrink { op: self.epoch, groups })
    }

    /// Takes in what came of an attempt to grow. An answer that comes late or twice changes nothing, and is answered with
    /// `false`: its groups are found by the next [`resync`](Self::resync). Those who wait for what was
    /// [refused](Fault::Refused) are to be [dismissed](Self::dismiss), or it would be asked for again at once; ahead of demand
    /// nothing is made then until somebody asks.
    pub fn grown(&mut self, op: u64, outcome: Grown<K::Group>, now: Duration) -> bool {
        if self.growing.as_ref().is_none_or(|growing| growing.op != op) {
            return false;
        }
        let Some(Growing { want, .. }) = self.growing.take() else { return false };
        self.epoch += 1;
        let Grown { got, fault } = outcome;
        // Whoever answers with nothing and no fault would be asked for ever.
        let fault = fault.or(got.is_empty().then_some(Fault::Failed));
        if fault == Some(Fault::Refused) {
            self.asked = self.waiting.iter().any(|(_, other)| *other != want);
        } else {
            self.growth.asked(fault, now);
        }
        self.add(got, &want, now);
        true
    }

    /// Takes in a part of what an attempt to grow brings; `rest` groups are still being made. It says nothing of the attempt to
    /// come. Late: as above.
    pub fn grew(&mut self, op: u64, got: Vec<K::Group>, rest: usize, now: Duration) -> bool {
        let Some(growing) = self.growing.as_mut().filter(|growing| growing.op == op) else { return false };
        growing.count = rest;
        let want = growing.want.clone();
        self.epoch += 1;
        self.add(got, &want, now);
        true
    }

    fn add(&mut self, got: Vec<K::Group>, want: &K::Want, now: Duration) {
        for name in got {
            if !self.groups.contains_key(&name) {
                let items = K::items(&name);
                self.groups.insert(name.clone(), Group::new(want, false, self.epoch, items.len()));
                for item in items {
                    self.free_up(item, name.clone(), now);
                }
            }
        }
    }

    /// Takes in what came of an attempt to shrink: these groups are still there, or may be. Late or twice: as above.
    pub fn shrunk(&mut self, op: u64, left: &[K::Group], now: Duration) -> bool {
        let Some((_, groups)) = self.shrinking.take_if(|(shrinking, _)| *shrinking == op) else {
            return false;
        };
        self.epoch += 1;
        self.decline.asked((!left.is_empty()).then_some(Fault::Failed), now);
        for group in groups.iter().filter(|group| !left.contains(group)) {
            self.drop_group(group);
        }
        true
    }

    /// Where the pool stands.
    pub fn counts(&self, now: Duration) -> Counts {
        let calm = now < self.calm_until || !self.asked;
        Counts {
            used: self.used.len(),
            warm: self.free(),
            cooling: self.cooling.len(),
            waiting: self.waiting.len(),
            lately: if calm { 0 } else { self.demand.lately(now) },
            calm,
            group_size: self.groups.values().next().map_or(1, |group| group.size),
            groups: self.groups.len(),
            wholly_free: self.whole,
            growing: self.growing.as_ref().map_or(0, |growing| growing.count),
            shrinking: self.doomed,
        }
    }

    /// Whether there is nothing left of the pool.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.growing.is_none() && self.waiting.is_empty()
    }

    /// Gives the pool up: nothing is handed out any more, and what is free is destroyed, what is held as soon as it has
    /// cooled down.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Takes the pool up again.
    pub fn resume(&mut self) {
        self.draining = false;
    }

    /// Whether the pool is given up.
    pub fn is_draining(&self) -> bool {
        self.draining
    }

    /// When the passing of time alone gives the pool something to do.
    pub fn next(&self, now: Duration) -> Option<Duration> {
        let cooled = self.coolest();
        let doomed = self.doomed > 0 && self.shrinking.is_none();
        let decline = self.decline.remaining(now).filter(|_| doomed).map(|remaining| now + remaining);
        let growth = self.pressed(now).map(|remaining| now + remaining);
        let calm = Some(self.calm_until).filter(|until| *until > now);
        [cooled, decline, growth, calm].into_iter().flatten().min()
    }

    pub(super) fn free(&self) -> usize {
        if self.draining { 0 } else { self.warm.len() }
    }

    /// Whether the plan would let it grow now for those who wait.
    pub(super) fn may_grow(&self, now: Duration) -> bool {
        !self.draining
            && self.pressed(now).is_none()
            && matches!(self.policy.plan(&self.counts(now)), Plan::Grow(_))
    }
}
