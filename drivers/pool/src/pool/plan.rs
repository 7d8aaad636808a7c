//! The actions that a warm pool asks its caller to execute, and the methods that take their results.

use std::sync::Arc;
use std::time::Duration;

use super::PoolKind;
use super::attempt::{AttemptBackoff, Grown, Shortfall};
use super::policy::{PoolCounts, SizeChange, SizePolicy};
use super::warm_pool::{Group, Growing, WarmPool};

/// An action that a [`WarmPool`] asks its caller to execute. At any time, at most one action of each kind is in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<G, W> {
    /// Create groups with a configuration. The caller reports the result to [`WarmPool::grown`].
    Grow {
        /// The id of the action, which the caller passes to [`WarmPool::grown`] with the result.
        op: u64,
        /// The number of groups to create.
        count: usize,
        /// The configuration with which the groups are created.
        want: W,
    },
    /// Delete groups. The caller reports the result to [`WarmPool::shrunk`].
    Shrink {
        /// The id of the action, which the caller passes to [`WarmPool::shrunk`] with the result.
        op: u64,
        /// The groups to delete.
        groups: Vec<G>,
    },
}

impl<K: PoolKind> WarmPool<K> {
    /// Returns the next action, which the caller must start; `None` if there is nothing to do, or if the required action must wait for the
    /// end of another one of its kind, of a back-off or of a [block](Self::block).
    pub fn plan(&mut self, now: Duration) -> Option<Action<K::Group, K::Want>> {
        self.tick(now);
        let planned =
            if self.draining { SizeChange::Shrink(usize::MAX) } else { self.policy.plan(&self.counts(now)) };
        match planned {
            SizeChange::Grow(count) if self.growing.is_none() && self.growth_delay(now).is_none() => {
                self.epoch += 1;
                let want = self.waiting.front().map_or(&self.wanted, |(_, want)| want).clone();
                self.growing = Some(Growing { op: self.epoch, count, want: want.clone() });
                return Some(Action::Grow { op: self.epoch, count, want });
            }
            SizeChange::Shrink(count)
                if self.shrinking.is_none() && self.deletion_backoff.remaining(now).is_none() =>
            {
                let whole = self.groups.iter().rev().filter(|(_, group)| group.is_wholly_free());
                let chosen: Vec<_> = whole.map(|(name, _)| name.clone()).take(count).collect();
                for name in chosen {
                    self.discard(&name);
                }
            }
            _ => {}
        }
        if self.to_delete.is_empty()
            || self.shrinking.is_some()
            || self.deletion_backoff.remaining(now).is_some()
        {
            return None;
        }
        self.epoch += 1;
        self.shrinking = Some((self.epoch, self.to_delete.clone()));
        Some(Action::Shrink { op: self.epoch, groups: self.to_delete.iter().cloned().collect() })
    }

    /// Records the result of [`Action::Grow`] with the id `op`, or a part of it. A late or repeated result changes nothing and
    /// returns `false`: the next [`resync`](Self::resync) finds its groups. After [`Shortfall::Refused`], the caller must
    /// [dismiss](Self::dismiss) the owners that wait for this configuration, otherwise it is requested again at once. No groups
    /// are then created ahead of demand until the next request.
    pub fn grown(&mut self, op: u64, result: Grown<K::Group>, now: Duration) -> bool {
        let Some(Growing { count, want, .. }) = self.growing.take_if(|growing| growing.op == op) else {
            return false;
        };
        self.epoch += 1;
        let Grown { got, rest, shortfall } = result;
        // An empty result without a fault would otherwise be repeated for ever.
        let shortfall = shortfall.or(got.is_empty().then_some(Shortfall::Failed));
        if rest > 0 {
            self.growing = Some(Growing { op, count: rest.min(count), want: want.clone() });
        } else if shortfall == Some(Shortfall::Refused) {
            self.requested = self.waiting.iter().any(|(_, other)| *other != want);
        } else {
            self.growth_backoff.record(shortfall, now);
        }
        for name in got {
            if !self.groups.contains_key(&name) {
                for item in self.insert(&name, &want, false) {
                    self.add_free(item, now);
                }
            }
        }
        true
    }

    /// Adds a group to the pool and returns its items, such as the addresses of a prefix. The caller must make each item free, or
    /// start its cool-down (the time before a released item is handed out again). `ready` is `true` if an owner can use an item at
    /// once, and `false` if the items are still being activated.
    pub(super) fn insert(&mut self, name: &K::Group, config: &K::Want, ready: bool) -> Vec<K::Item> {
        let (items, config) = (K::items(name), Some(config.clone()));
        let group = Group { config, ready, epoch: self.epoch, size: items.len(), free: 0 };
        self.groups.insert(name.clone(), group);
        items
    }

    /// Records the result of [`Action::Shrink`] with the id `op`: `left` are the groups that still exist, or may. A late or
    /// repeated result changes nothing and returns `false`.
    pub fn shrunk(&mut self, op: u64, left: &[K::Group], now: Duration) -> bool {
        let Some((_, groups)) = self.shrinking.take_if(|(shrinking, _)| *shrinking == op) else {
            return false;
        };
        self.epoch += 1;
        self.deletion_backoff.record((!left.is_empty()).then_some(Shortfall::Failed), now);
        for group in groups.iter().filter(|group| !left.contains(group)) {
            self.groups.remove(group);
            self.to_delete.remove(group);
        }
        true
    }

    /// Takes back those of `groups` that are to be deleted and surely exist, because their deletion was refused: their items are free.
    pub fn keep<'g>(&mut self, groups: impl IntoIterator<Item = &'g K::Group>, now: Duration)
    where
        K::Group: 'g,
    {
        for group in groups {
            if self.to_delete.remove(group) {
                for item in K::items(group) {
                    self.add_free(item, now);
                }
            }
        }
    }

    /// Prevents the creation of groups before the time `until`, because a resource that other pools need too is exhausted.
    pub fn block(&mut self, until: Duration) {
        self.blocked_until = until;
    }

    /// Ends the back-off and the [block](Self::block) of creation, so that groups may be created at once, for example because an exhausted
    /// resource is available again.
    pub fn end_backoff(&mut self) {
        (self.growth_backoff, self.blocked_until) = (AttemptBackoff::default(), Duration::ZERO);
    }

    /// Returns the remaining delay before more groups may be created, because of the back-off or a
    /// [block](Self::block); `None` if they may be created now.
    pub(super) fn growth_delay(&self, now: Duration) -> Option<Duration> {
        let blocked = self.blocked_until.checked_sub(now).filter(|blocked| !blocked.is_zero());
        self.growth_backoff.remaining(now).max(blocked)
    }

    /// Returns the current counts of the pool, from which its policy decides.
    pub fn counts(&self, now: Duration) -> PoolCounts {
        let is_starting = now < self.on_demand_until || self.is_starting && !self.unconfirmed.is_empty();
        let on_demand = is_starting || !self.requested;
        PoolCounts {
            used: self.used.len(),
            warm: self.free(),
            cooling: self.cooling.len() + self.unconfirmed.len(),
            waiting: self.waiting.len(),
            recent: if on_demand { 0 } else { self.demand.recent(now) },
            on_demand,
            group_size: self.groups.values().next().map_or(1, |group| group.size),
            groups: self.groups.len(),
            wholly_free: self.whole,
            growing: self.growing.as_ref().map_or(0, |growing| growing.count),
            shrinking: self.to_delete.len(),
        }
    }

    /// Returns `true` if the pool can be dropped: it has no groups and creates none, no owner waits, and either it is draining or
    /// no item was requested since creation last failed with [`Shortfall::Refused`].
    pub fn is_done(&self) -> bool {
        let idle = self.groups.is_empty() && self.growing.is_none() && self.waiting.is_empty();
        idle && (self.draining || !self.requested)
    }

    /// Replaces the policy that decides the size of the pool, for example after a change of the configuration. The next
    /// [`plan`](Self::plan) obeys it.
    pub fn set_policy(&mut self, policy: Arc<dyn SizePolicy>) {
        self.policy = policy;
    }

    /// Stops handing out items and empties the pool: free items are deleted at once, used ones after they are returned and have
    /// cooled down.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Ends [`drain`](Self::drain): items are handed out again.
    pub fn resume(&mut self) {
        self.draining = false;
    }

    /// Returns `true` if the pool hands out no items and is being emptied, that is, from [`drain`](Self::drain) to
    /// [`resume`](Self::resume).
    pub fn is_draining(&self) -> bool {
        self.draining
    }

    /// Returns the time at which [`plan`](Self::plan) must be called next if the pool does not change before; `None` if the pool waits for
    /// no time, such as the end of a cool-down or of a back-off.
    pub fn next(&self, now: Duration) -> Option<Duration> {
        let cooled = self.cooling.front().map(|(_, until)| *until);
        let deletion_backoff = self.deletion_backoff.remaining(now).map(|remaining| now + remaining);
        let growth_backoff = self.growth_delay(now).map(|remaining| now + remaining);
        let on_demand = Some(self.on_demand_until).filter(|until| *until > now);
        [cooled, deletion_backoff, growth_backoff, on_demand].into_iter().flatten().min()
    }

    /// Returns the number of items that can be handed out at once; 0 while the pool is draining.
    pub(super) fn free(&self) -> usize {
        if self.draining { 0 } else { self.warm.len() }
    }

    /// Returns `true` if the policy, the back-off and the actions in progress allow the creation of groups
    /// now.
    pub(super) fn may_grow(&self, now: Duration) -> bool {
        !self.draining
            && self.growth_delay(now).is_none()
            && matches!(self.policy.plan(&self.counts(now)), SizeChange::Grow(_))
    }
}
