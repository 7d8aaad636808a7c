//! The failures of an object, from the first one until the object is handled successfully.

use std::any::Any;
use std::sync::Arc;

use tokio::time::Instant;

use super::action::Why;
use crate::event::{Identity, truncated};
use crate::failure::{Failure, causes};

/// The last error of an object since it was last handled successfully.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastError {
    /// The error with its causes, in one line. The text is cut after 1024 bytes.
    pub error: Arc<str>,
    /// The [reason](Failure::reason) of the error.
    pub reason: &'static str,
    /// The number of failed attempts since the object was last handled successfully.
    pub attempts: u32,
    /// The time of the first failed attempt since the object was last handled successfully.
    pub since: Instant,
}

impl LastError {
    /// Returns the error after `last`, which failed at the time `now`.
    fn after(last: Option<Self>, error: &dyn Failure, now: Instant) -> Self {
        let (attempts, since) = last.map_or((0, now), |last| (last.attempts, last.since));
        let error_text = truncated(causes(error)).into();
        Self { error: error_text, reason: error.reason(), attempts: attempts.saturating_add(1), since }
    }
}

/// The attempts of an object that is not handled successfully yet. A message that replaces another one takes them over.
#[derive(Clone, Debug, Default)]
pub struct Failures {
    /// The current series of retries; `None` between two series.
    series: Option<Series>,
    /// The number of series of retries that ended with a failure.
    pub(super) requeues: u32,
    last_error: Option<LastError>,
    /// The reason for which the work is not finished, with the number of such attempts; `None` if the last attempt failed.
    unfinished: Option<LastError>,
    /// The time at which the last attempt ended.
    last_attempt: Option<Instant>,
    /// `true` if the last failure was transient, so that its cause may be an outage. Unfinished work does not count, because it may be
    /// reported without a call of a driver.
    pub(super) transient: bool,
    /// The object on which the failure was reported as a Kubernetes Event; `None` if it was not reported.
    pub(super) reported_on: Option<Arc<Identity>>,
    /// The value that an outer wrapper keeps for the next attempt and for status pages; `None` if there is none.
    pub(super) note: Option<Arc<dyn Any + Send + Sync>>,
}

/// The [`Failures`] of an object; `None` if there are none, as of most objects.
pub(super) type Memory = Option<Arc<Failures>>;

/// A series of retries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Series {
    /// The time of the first attempt of the series that did not succeed.
    pub(super) since: Instant,
    /// The number of attempts of the series.
    pub(super) attempts: u32,
}

impl Failures {
    /// Returns the last error that counted as a failure since the object was last handled successfully; `None` if there was none.
    /// Unfinished work counts once it is reported as a failure.
    pub fn last_error(&self) -> Option<&LastError> {
        self.last_error.as_ref()
    }

    /// Returns the reason for which the object is not handled yet: the last error, or the reason why its work is not finished.
    pub fn most_recent(&self) -> Option<&LastError> {
        self.unfinished.as_ref().or(self.last_error.as_ref())
    }

    /// Returns the number of failed attempts since the object was last handled successfully.
    pub fn attempts(&self) -> u32 {
        self.last_error.as_ref().map_or(0, |last| last.attempts)
    }

    /// Returns the number of times that the object was requeued after its retries had ended with a failure.
    pub fn requeues(&self) -> u32 {
        self.requeues
    }

    /// Records that a failure was reported as a Kubernetes Event on `object`. Returns `true` at the first call since the object was last
    /// handled successfully; later calls change nothing and return `false`.
    pub fn set_reported_on(&mut self, object: Identity) -> bool {
        let first = self.reported_on.is_none();
        self.reported_on.get_or_insert_with(|| Arc::new(object));
        first
    }

    /// Returns the object on which a failure was first reported as a Kubernetes Event since the last success; `None` if none was
    /// reported.
    pub fn reported_on(&self) -> Option<&Identity> {
        self.reported_on.as_deref()
    }

    /// Returns the current series of retries, or one that begins at `now`.
    pub(super) fn series(&self, now: Instant) -> Series {
        self.series.unwrap_or(Series { since: now, attempts: 0 })
    }

    /// Records an attempt that failed with `error`, after which another one of the series follows if `retried` is `true`.
    pub(super) fn failed(&mut self, error: &dyn Failure, retried: bool) {
        let now = Instant::now();
        self.last_error = Some(LastError::after(self.last_error.take(), error, now));
        self.unfinished = None;
        self.transient = error.transient();
        self.continued(retried, now);
    }

    /// Records an attempt after which the work is not finished. Returns `true` if that counts as a failure now.
    pub(super) fn unfinished(&mut self, why: &Why) -> bool {
        let now = Instant::now();
        let previous = self.last_attempt.unwrap_or(now);
        let unfinished = LastError::after(self.unfinished.take(), why, now);
        let since = unfinished.since;
        self.unfinished = Some(unfinished);
        let period = why.report_after.as_nanos();
        let periods = |at: Instant| at.saturating_duration_since(since).as_nanos().checked_div(period);
        let is_failure = period == 0 || periods(now) > periods(previous);
        if is_failure {
            let since = self.last_error.as_ref().map_or(since, |last| last.since.min(since));
            self.last_error = self.unfinished.clone().map(|last| LastError { since, ..last });
        }
        self.continued(!why.queued, now);
        is_failure
    }

    /// Counts an attempt of the current series, or ends the series.
    fn continued(&mut self, goes_on: bool, now: Instant) {
        self.last_attempt = Some(now);
        let Series { since, attempts } = self.series(now);
        self.series = goes_on.then_some(Series { since, attempts: attempts.saturating_add(1) });
    }

    /// Adds the failures of a message that `self`'s message replaces. Where both have a value, the older one is kept, with the higher of
    /// both numbers of requeues.
    pub(super) fn after(self, mut older: Self) -> Self {
        older.requeues = older.requeues.max(self.requeues);
        older.last_error = older.last_error.or(self.last_error);
        older.unfinished = older.unfinished.or(self.unfinished);
        older.reported_on = older.reported_on.or(self.reported_on);
        older.note = older.note.or(self.note);
        older
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn unfinished_work_is_a_failure_once_in_each_period_and_at_once_without_one() {
        for (period, expected) in [(0, [true, true, true]), (15, [false, false, true])] {
            let why = Why { report_after: Duration::from_secs(period), ..Why::new("not yet") };
            let mut failures = Failures::default();
            for expected in expected {
                assert_eq!(failures.unfinished(&why), expected, "{period}");
                tokio::time::advance(Duration::from_secs(10)).await;
            }
        }
    }
}
