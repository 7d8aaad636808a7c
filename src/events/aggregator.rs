//! Which Event is sent when: what happened again and again is one Event that counts, and however much happens, the server
//! is asked no more often than the limits say. Pure: it is told the time.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::bucket::{Bucket, Rate};
use super::name::Names;
use super::notice::Notice;
use super::refusals::Refusals;

/// How often the server is asked at most, and how much is remembered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Requests for all objects together.
    pub(crate) all: Rate,
    /// Requests for one object, whatever happens to it in whichever handler.
    pub(crate) object: Rate,
    /// The time between two requests for one Event.
    pub(crate) spacing: Duration,
    /// How long after its last occurrence an Event goes on; what happens later is another one.
    pub(crate) memory: Duration,
    /// How many Events are remembered.
    pub(crate) capacity: usize,
}

impl Default for Limits {
    /// 10 a second and 50 at once for all; for one object one a minute and 5 at once, each Event once a minute. 16,384 Events
    /// are remembered for 30 minutes, longer than the longest time after which a failed object is handled again.
    fn default() -> Self {
        Self {
            all: Rate { burst: 50, interval: Duration::from_millis(100) },
            object: Rate { burst: 5, interval: Duration::from_secs(60) },
            spacing: Duration::from_secs(60),
            memory: Duration::from_secs(30 * 60),
            capacity: 16 * 1024,
        }
    }
}

/// What makes two occurrences one Event: the object, the reason, and the handler.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    object: Arc<str>,
    action: Arc<str>,
    reason: &'static str,
}

impl Key {
    fn of(notice: &Notice) -> Self {
        let regarding = &notice.regarding;
        let object = match regarding.uid.as_deref() {
            Some(uid) if !uid.is_empty() => uid.into(),
            _ => format!("{:?} {:?} {:?}", regarding.kind, regarding.namespace, regarding.name).into(),
        };
        Self { object, action: Arc::clone(&notice.action), reason: notice.reason }
    }
}

/// Occurrences that are one Event.
struct Series {
    /// The name of the Event.
    name: String,
    count: i32,
    first: Timestamp,
    observed: Instant,
    /// Whether the server has it, as far as is known.
    stands: bool,
    sent: Option<Instant>,
    /// The newest occurrence, until it is sent.
    news: Option<Notice>,
}

/// One request: makes the Event, or brings it up to date.
#[derive(Clone, Debug)]
pub(crate) struct Posting {
    key: Key,
    /// Whether it is made or brought up to date.
    pub(crate) step: Step,
    /// The name of the Event.
    pub(crate) name: String,
    /// How often it has happened by now.
    pub(crate) count: i32,
    /// When it happened first.
    pub(crate) first: Timestamp,
    /// The newest occurrence.
    pub(crate) notice: Notice,
}

/// What a request does with an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Create,
    Update,
}

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It was done.
    Done,
    /// The Event that was to be brought up to date is no more: the server keeps them for an hour.
    Vanished,
    /// The Event that was to be made is there: an answer got lost.
    Existed,
    /// The server does not want it, and will not.
    Refused,
    /// It may succeed later.
    Failed,
}

/// What is to be done next.
#[derive(Debug)]
pub(crate) enum Next {
    /// This.
    Send(Box<Posting>),
    /// Nothing until this moment.
    At(Instant),
    /// Nothing until something happens.
    Nothing,
}

/// See the module.
pub(crate) struct Aggregator {
    limits: Limits,
    names: Names,
    all: Bucket,
    /// The objects for which requests were made of late.
    objects: HashMap<Arc<str>, Bucket>,
    series: HashMap<Key, Series>,
    /// What has news, by the time at which it may be sent, then in order of arrival.
    queue: BTreeMap<(Instant, u64), Key>,
    arrivals: u64,
    /// The namespaces for which nothing is sent at the moment.
    pub(super) refusals: Refusals,
}

impl Aggregator {
    /// Names Events after `first` and the numbers that follow.
    pub(crate) fn new(limits: Limits, first: u64, now: Instant) -> Self {
        Self {
            limits,
            names: Names::new(first),
            all: Bucket::full(now),
            objects: HashMap::new(),
            series: HashMap::new(),
            queue: BTreeMap::new(),
            arrivals: 0,
            refusals: Refusals::default(),
        }
    }

    /// Counts an occurrence. Answers whether it will be told; not when nothing is left to forget in its favour.
    pub(crate) fn take(&mut self, notice: Notice, now: Instant) -> bool {
        let key = Key::of(&notice);
        if !self.series.contains_key(&key) && !self.make_room(now) {
            return false;
        }
        let (limits, names) = (self.limits, &mut self.names);
        let mut begin = || Series {
            name: names.next(notice.regarding.name.as_deref().unwrap_or_default()),
            count: 0,
            first: notice.at,
            observed: now,
            stands: false,
            sent: None,
            news: None,
        };
        let series = self.series.entry(key.clone()).or_insert_with(&mut begin);
        if series.is_over(&limits, now) {
            *series = begin();
        }
        series.count = series.count.saturating_add(1);
        series.observed = now;
        let due = series.sent.map_or(now, |sent| now.max(sent + limits.spacing));
        if series.news.replace(notice).is_none() {
            self.enqueue(key, due);
        }
        true
    }

    /// What is to be done now. Only one posting may be under way at a time; what came of it is told to
    /// [`answered`](Self::answered).
    pub(crate) fn next(&mut self, now: Instant) -> Next {
        loop {
            let Some((&(due, _), _)) = self.queue.first_key_value() else { return Next::Nothing };
            let free = now + self.all.wait(self.limits.all, now);
            if due.max(free) > now {
                return Next::At(due.max(free));
            }
            let Some((_, key)) = self.queue.pop_first() else { return Next::Nothing };
            if let Some(until) = self.refused_until(&key, now) {
                self.enqueue(key, until);
                continue;
            }
            let bucket = self.objects.entry(Arc::clone(&key.object)).or_insert_with(|| Bucket::full(now));
            let wait = bucket.wait(self.limits.object, now);
            if !wait.is_zero() {
                self.enqueue(key, now + wait);
                continue;
            }
            let Some(series) = self.series.get_mut(&key) else { continue };
            let Some(notice) = series.news.take() else { continue };
            bucket.take(self.limits.object, now);
            self.all.take(self.limits.all, now);
            series.sent = Some(now);
            return Next::Send(Box::new(Posting {
                key,
                step: if series.stands { Step::Update } else { Step::Create },
                name: series.name.clone(),
                count: series.count,
                first: series.first,
                notice,
            }));
        }
    }

    /// What came of a posting. What is not known to the server is tried again, as the limits allow.
    pub(crate) fn answered(&mut self, posting: Posting, answer: Answer, now: Instant) {
        // It may have been forgotten meanwhile, and be another Event by now.
        let series = self.series.get_mut(&posting.key).filter(|series| series.name == posting.name);
        let Some(series) = series else { return };
        match answer {
            Answer::Refused => return,
            Answer::Done => {
                series.stands = true;
                return;
            }
            Answer::Existed => series.stands = true,
            Answer::Vanished => series.stands = false,
            Answer::Failed => {}
        }
        // What happened meanwhile is newer, and waits already.
        if series.news.is_none() {
            series.news = Some(posting.notice);
            self.enqueue(posting.key, now);
        }
    }

    /// Until when the namespace of the Event takes none.
    fn refused_until(&self, key: &Key, now: Instant) -> Option<Instant> {
        let notice = self.series.get(key)?.news.as_ref()?;
        self.refusals.until(notice.kept_in(), now)
    }

    /// How many Events have news that the server does not know.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    fn enqueue(&mut self, key: Key, due: Instant) {
        self.arrivals += 1;
        self.queue.insert((due, self.arrivals), key);
    }

    /// Makes room for one more Event: forgets what is over, else the quarter of what the server knows that was not seen for
    /// the longest time. Answers whether there is room.
    fn make_room(&mut self, now: Instant) -> bool {
        let Limits { capacity, .. } = self.limits;
        if self.series.len() < capacity {
            return true;
        }
        self.objects.retain(|_, bucket| !bucket.is_full(now));
        let limits = self.limits;
        self.series.retain(|_, series| !series.is_over(&limits, now));
        if self.series.len() >= capacity {
            let told = self.series.values().filter(|series| series.news.is_none());
            let mut observed: Vec<_> = told.map(|series| series.observed).collect();
            observed.sort_unstable();
            if let Some(&eldest) = observed.get((capacity / 4).min(observed.len().saturating_sub(1))) {
                self.series.retain(|_, series| series.news.is_some() || series.observed > eldest);
            }
        }
        self.series.len() < capacity
    }
}

impl Series {
    fn is_over(&self, limits: &Limits, now: Instant) -> bool {
        self.news.is_none() && now.saturating_duration_since(self.observed) > limits.memory
    }
}

#[cfg(test)]
mod tests;
