//! Aggregates occurrences by object, handler and reason, and decides when which Kubernetes Event is written. The module does no I/O and
//! gets the time as an argument.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use staffetta_handler::{Backoff, BackoffPolicy};
use tokio::time::Instant;

use super::occurrence::{Occurrence, event_name};

/// The delays after failed writes to a namespace, unless the server requests another delay.
const BACKOFF: BackoffPolicy = BackoffPolicy::unlimited(Duration::from_secs(1), Duration::from_secs(60));

/// The minimum time between two searches for series to remove, if the first one found too few.
const SEARCH_INTERVAL: Duration = Duration::from_secs(1);

/// The limits of an [`Aggregator`]: on the rate of writes of Events, and on the series (occurrences counted in one Event) that it keeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The number of writes of the process without a delay after a quiet time; at least 1.
    pub(super) burst: u32,
    /// The time between two writes of the process after a burst.
    pub(super) write_interval: Duration,
    /// The minimum time between two writes of one Event.
    pub(super) min_write_interval: Duration,
    /// The time after the last occurrence of a series at which the series ends. It is longer than the default of `relay.failed_resync_max`.
    pub(super) memory: Duration,
    /// The maximum number of series that are kept.
    pub(super) capacity: usize,
}

/// The limits of the real program, which `docs/events.md` documents: 50 writes at once, then ten per second.
pub(super) const LIMITS: Limits = Limits {
    burst: 50,
    write_interval: Duration::from_millis(100),
    min_write_interval: Duration::from_secs(60),
    memory: Duration::from_secs(30 * 60),
    capacity: 16 * 1024,
};

/// The key of a series: the object, the handler and the reason.
type SeriesKey = (Arc<str>, Arc<str>, &'static str);

/// The occurrences that are counted in one Event.
struct Series {
    name: String,
    /// `true` for type `Warning`.
    warning: bool,
    count: i32,
    first: Timestamp,
    last_seen: Instant,
    last_written: Option<Instant>,
    /// `true` if the Event exists as far as this process knows.
    exists: bool,
    /// The last occurrence; `None` if it is written already.
    pending: Option<Occurrence>,
}

/// A request that creates an Event, or updates its count and note.
#[derive(Clone, Debug)]
pub(super) struct EventWrite {
    key: SeriesKey,
    /// `true` to update an Event, `false` to create it.
    pub(super) update: bool,
    /// The name of the Event.
    pub(super) name: String,
    /// The number of occurrences that the Event counts so far.
    pub(super) count: i32,
    /// The time of the first occurrence that the Event counts.
    pub(super) first: Timestamp,
    /// The last occurrence that the Event counts.
    pub(super) occurrence: Occurrence,
}

/// The outcome of an [`EventWrite`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventOutcome {
    /// The server accepted the Event.
    Done,
    /// The Event to update does not exist any more, because the server keeps Events only for an hour by default.
    NotFound,
    /// The Event to create exists already, because the response to an earlier request was lost.
    AlreadyExists,
    /// The server will never accept the Event.
    Rejected,
    /// The write failed but may succeed later, after the delay that the server requests, if any.
    Failed(Option<Duration>),
}

/// All series (the occurrences that are counted in one Event), and the time at which each of them is written next.
pub(super) struct Aggregator {
    limits: Limits,
    /// The time from which a whole burst of writes is allowed: the state of a token bucket.
    whole_burst_at: Instant,
    /// The number in the name of the next Event that is created.
    next_number: u64,
    series: HashMap<SeriesKey, Series>,
    /// The series with a pending occurrence, by due time and order of arrival: first those of type `Warning`, which are written first, and
    /// then those of type `Normal`.
    queues: [BTreeMap<(Instant, u64), SeriesKey>; 2],
    /// The number of additions to the queues so far, which gives the order of arrival.
    arrivals: u64,
    /// The times until which there is no room for an occurrence of type `Warning`, and of type `Normal`, because a search found too few
    /// series to remove. The search is not repeated before, because the handler that adds the occurrence waits for it.
    full_until: [Instant; 2],
    /// The namespaces in which the last write failed, each with its back-off and the time of the next write.
    paused: HashMap<String, (Backoff, Instant)>,
}

impl Aggregator {
    /// Creates an empty aggregator. The names of Events contain a number, beginning with `number`.
    pub(super) fn new(limits: Limits, number: u64, now: Instant) -> Self {
        let (series, queues, paused) = (HashMap::new(), Default::default(), HashMap::new());
        let (whole_burst_at, next_number, full_until) = (now, number, [now; 2]);
        Self { limits, whole_burst_at, next_number, series, queues, arrivals: 0, full_until, paused }
    }

    /// Counts an occurrence in its series. Returns `false` if it is discarded: it would begin a series, but the maximum number of series is
    /// reached, and too few of them may be removed. For an occurrence of type `Normal`, the maximum is half as large.
    pub(super) fn add(&mut self, occurrence: Occurrence, now: Instant) -> bool {
        let Limits { min_write_interval, memory, capacity, .. } = self.limits;
        let (warning, capacity) =
            (occurrence.warning, if occurrence.warning { capacity } else { capacity / 2 });
        let is_current = |series: &Series| {
            series.pending.is_some() || now.saturating_duration_since(series.last_seen) <= memory
        };
        let key = (occurrence.object(), Arc::clone(&occurrence.handler), occurrence.reason);
        if !self.series.get(&key).is_some_and(is_current) {
            self.series.remove(&key);
            if self.pending() >= capacity {
                return false;
            }
            if self.series.len() >= capacity {
                let full_until = &mut self.full_until[usize::from(!warning)];
                if now < *full_until {
                    return false;
                }
                self.series.retain(|_, series| is_current(series));
                if self.series.len() >= capacity {
                    let is_kept = |series: &Series| series.pending.is_some() || series.warning && !warning;
                    self.series.retain(|_, series| is_kept(series));
                }
                if self.series.len() >= capacity {
                    *full_until = now + SEARCH_INTERVAL;
                    return false;
                }
            }
        }
        let series = self.series.entry(key.clone()).or_insert_with(|| {
            let name = event_name(&occurrence.regarding.name, self.next_number);
            self.next_number = self.next_number.wrapping_add(1);
            let (first, last_seen, last_written) = (occurrence.at, now, None);
            Series { name, warning, count: 0, first, last_seen, last_written, exists: false, pending: None }
        });
        series.count = series.count.saturating_add(1);
        series.last_seen = now;
        let due = series.last_written.map_or(now, |written| now.max(written + min_write_interval));
        let warning = series.warning;
        if series.pending.replace(occurrence).is_none() {
            self.enqueue(key, due, warning);
        }
        true
    }

    /// Returns the earliest time of the next write, which a pause of its namespace may delay; `None` if nothing is to be written.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let first = self.queues.iter().filter_map(|queue| queue.first_key_value()).map(|((due, _), _)| *due);
        let Limits { burst, write_interval, .. } = self.limits;
        Some(first.min()?).max(self.whole_burst_at.checked_sub(write_interval * (burst - 1)))
    }

    /// Removes and returns the next write; `None` if none is due. The caller must pass its outcome to [`finish`](Self::finish) before the
    /// next call.
    pub(super) fn pop(&mut self, now: Instant) -> Option<EventWrite> {
        while self.next_due()? <= now {
            let is_due = |queue: &&mut BTreeMap<(Instant, u64), SeriesKey>| {
                queue.first_key_value().is_some_and(|((due, _), _)| *due <= now)
            };
            let (_, key) = self.queues.iter_mut().find(is_due)?.pop_first()?;
            let Some(series) = self.series.get_mut(&key) else { continue };
            let Some(occurrence) = series.pending.take() else { continue };
            let pause = self.paused.get(occurrence.namespace()).filter(|(_, until)| *until > now);
            if let Some(&(_, until)) = pause {
                let warning = series.warning;
                series.pending = Some(occurrence);
                self.enqueue(key, until, warning);
                continue;
            }
            self.whole_burst_at = self.whole_burst_at.max(now) + self.limits.write_interval;
            series.last_written = Some(now);
            let Series { ref name, count, first, exists: update, .. } = *series;
            return Some(EventWrite { key, update, name: name.clone(), count, first, occurrence });
        }
        None
    }

    /// Records the outcome of a write. Queues the write again unless the server accepted or rejected it.
    pub(super) fn finish(&mut self, write: EventWrite, outcome: EventOutcome, now: Instant) {
        // The series may have been removed, and another one of this key begun.
        let series = self.series.get_mut(&write.key).filter(|series| series.name == write.name);
        let Some(series) = series else { return };
        match outcome {
            EventOutcome::Done | EventOutcome::AlreadyExists => series.exists = true,
            EventOutcome::NotFound => series.exists = false,
            EventOutcome::Rejected | EventOutcome::Failed(_) => {}
        }
        let repeat = !matches!(outcome, EventOutcome::Done | EventOutcome::Rejected);
        // An occurrence that arrived in between is newer and is queued already.
        if repeat && series.pending.is_none() {
            let warning = series.warning;
            series.pending = Some(write.occurrence);
            self.enqueue(write.key, now, warning);
        }
    }

    /// Pauses writes to a namespace after a failure, for the time `hint` or, if that is `None`, for a growing delay. Returns the delay, and
    /// `true` if the namespace was not paused before.
    pub(super) fn pause(
        &mut self,
        namespace: &str,
        hint: Option<Duration>,
        now: Instant,
    ) -> (Duration, bool) {
        let is_first = !self.paused.contains_key(namespace);
        let (backoff, until) =
            self.paused.entry(namespace.to_owned()).or_insert_with(|| (BACKOFF.start(), now));
        let delay = backoff.delay(hint);
        *until = now + delay;
        (delay, is_first)
    }

    /// Ends the pause of a namespace. Returns `true` if it was paused.
    pub(super) fn resume(&mut self, namespace: &str) -> bool {
        self.paused.remove(namespace).is_some()
    }

    /// Returns the number of Events with an occurrence that is not written yet.
    pub(super) fn pending(&self) -> usize {
        self.queues.iter().map(BTreeMap::len).sum()
    }

    /// Adds a series to the queue of its type (`Warning` if `warning` is `true`). Its Event is written at `due` at the earliest.
    fn enqueue(&mut self, key: SeriesKey, due: Instant, warning: bool) {
        self.arrivals += 1;
        self.queues[usize::from(!warning)].insert((due, self.arrivals), key);
    }
}

#[cfg(test)]
mod tests;
