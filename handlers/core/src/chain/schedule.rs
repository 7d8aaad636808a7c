//! The times of the next attempts of one handler, and the attempts that show whether an outage is over.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use super::item::InOutage;
use crate::backoff::random_delay;
use crate::event::OrderingKey;

/// The time between two attempts to find out whether an outage is over, and between two ends of outages.
const PROBE_INTERVAL: Duration = Duration::from_secs(15);

/// The time over which the attempts are spread when an outage is over.
pub(super) const SPREAD: Duration = Duration::from_secs(10);

/// The smallest number of queues that are probed at a time.
const LEAST_PROBED: usize = 4;

/// The due times of the queues of one handler that only wait, one for each, in order.
///
/// During an outage, when messages wait after transient failures, a few of them are tried every [`PROBE_INTERVAL`]: about the root of
/// their number, those with the fewest attempts first, and not those whose error requested a delay. So objects which fail for reasons of
/// their own do not stand in the way.
#[derive(Default)]
pub(super) struct Schedule {
    times: BTreeSet<(Instant, OrderingKey)>,
    /// The time of each queue in `times`, and its first message in an outage, if there is one.
    queues: HashMap<OrderingKey, (Instant, Option<InOutage>)>,
    /// The number of queues with a message that waits after a transient failure.
    failing: usize,
    /// The time of the next probes, which counts while a message waits after a transient failure.
    probe: Option<Instant>,
    /// The time at which an outage last ended.
    ended: Option<Instant>,
}

impl Schedule {
    /// Sets the time of a queue to `due`, and its first message in an outage; with `None` for `due`, removes the queue. Returns `true` if
    /// [`next`](Self::next) became earlier.
    pub(super) fn set(
        &mut self,
        key: OrderingKey,
        due: Option<Instant>,
        outage: Option<InOutage>,
        now: Instant,
    ) -> bool {
        let before = self.next();
        let was_failing = self.failing > 0;
        if let Some((due, outage)) = self.queues.remove(&key) {
            self.times.remove(&(due, key));
            self.failing -= usize::from(outage.is_some());
        }
        if let Some(due) = due {
            self.times.insert((due, key));
            self.queues.insert(key, (due, outage));
            self.failing += usize::from(outage.is_some());
        }
        // While the only queue in an outage runs, there is none that waits: that alone does not postpone its probe.
        let is_old = |probe| now > probe + PROBE_INTERVAL;
        if !was_failing && self.failing > 0 && self.probe.is_none_or(is_old) {
            self.probe = Some(now + PROBE_INTERVAL);
        }
        if self.queues.is_empty() {
            // A burst of failures leaves no memory behind.
            self.queues = HashMap::new();
        }
        self.next().is_some_and(|next| before.is_none_or(|before| next < before))
    }

    /// Returns the time at which [`due`](Self::due) or [`probes`](Self::probes) has something to do; `None` if there is no such time.
    pub(super) fn next(&self) -> Option<Instant> {
        let first = self.times.first().map(|(due, _)| *due);
        [first, self.next_probe()].into_iter().flatten().min()
    }

    /// Returns the time of the next probes; `None` if no message waits after a transient failure.
    fn next_probe(&self) -> Option<Instant> {
        self.probe.filter(|_| self.failing > 0)
    }

    /// Returns the queues whose time has come.
    pub(super) fn due(&self, now: Instant) -> Vec<OrderingKey> {
        self.times.iter().take_while(|(due, _)| *due <= now).map(|(_, key)| *key).collect()
    }

    /// Returns the queues whose messages are to be tried now to find out whether an outage is over.
    pub(super) fn probes(&mut self, now: Instant) -> Vec<OrderingKey> {
        let Some(probe) = self.next_probe().filter(|probe| *probe <= now) else { return Vec::new() };
        self.probe = Some(probe.max(now) + PROBE_INTERVAL);
        let failing = self.queues.iter().filter_map(|(key, (_, outage))| Some((*key, (*outage)?)));
        let free = failing.filter(|(_, outage)| !outage.hinted);
        let mut order: Vec<_> = free
            .map(|(key, InOutage { attempts, .. })| (attempts, random_delay(PROBE_INTERVAL), key))
            .collect();
        order.sort_unstable();
        order.truncate(order.len().isqrt().max(LEAST_PROBED));
        order.into_iter().map(|(.., key)| key).collect()
    }

    /// Returns the queues to wake because an attempt shows that an outage may be over. Returns none if that was less than
    /// [`PROBE_INTERVAL`] ago.
    pub(super) fn end_outage(&mut self, now: Instant) -> Vec<OrderingKey> {
        if self.ended.is_some_and(|ended| now - ended < PROBE_INTERVAL) {
            return Vec::new();
        }
        self.ended = Some(now);
        let failing = self.queues.iter().filter(|(_, (_, outage))| outage.is_some());
        failing.map(|(key, _)| *key).collect()
    }
}
