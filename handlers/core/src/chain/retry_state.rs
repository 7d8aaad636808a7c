//! The failures of an object, from the first one until the object is handled successfully.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::backoff::{Backoff, BackoffPolicy, MAX_HINT};
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
    /// Updates `last` with one more failed attempt at the current time.
    fn record<'l>(last: &'l mut Option<Self>, error: &dyn Failure) -> &'l Self {
        let (attempts, since) =
            last.as_ref().map_or_else(|| (0, Instant::now()), |last| (last.attempts, last.since));
        let (attempts, reason) = (attempts.saturating_add(1), error.reason());
        last.insert(Self { error: truncated(causes(error)).into(), reason, attempts, since })
    }
}

/// The [`RetryState`] of an object that has failed. It is boxed because most objects have none.
pub(super) type RetryMemory = Option<Box<RetryState>>;

/// The failures of an object since it was last handled successfully. A message that replaces or supersedes another takes them over.
#[derive(Clone, Debug, Default)]
pub(super) struct RetryState {
    /// The back-off of the current series of retries; `None` between two series.
    backoff: Option<Backoff>,
    /// The number of times that the object was requeued after a failure.
    pub(super) failures: u32,
    /// The last error that counts as a failure.
    pub(super) last_error: Option<LastError>,
    /// The last error that only reported [unfinished work](Failure::pending).
    pub(super) pending: Option<LastError>,
    /// `true` if the most recent error is the one in `pending`, and not the one in `last_error`.
    pub(super) is_pending: bool,
    /// The time at which unfinished work was last reported as a failure.
    pending_reported: Option<Instant>,
    /// The delay that the last error requested (zero if none), if that error was transient, so that its cause may be an outage; `None`
    /// otherwise. An error that only reported [unfinished work](Failure::pending) does not count, because it may come from the handler
    /// itself, which has not called a driver.
    pub(super) outage: Option<Duration>,
    /// The object on which the failure was reported as a Kubernetes Event; `None` if it was not reported.
    pub(super) reported_on: Option<Arc<Identity>>,
    /// The details that an attempt attached last (`Context::attach`), for status pages; `None` if none did.
    pub(super) attachment: Option<Arc<dyn Any + Send + Sync>>,
}

impl RetryState {
    /// Records an attempt that failed with `error`.
    pub(super) fn failed(&mut self, error: &dyn Failure) {
        LastError::record(&mut self.last_error, error);
        self.is_pending = false;
        if error.pending().is_none() {
            self.outage = error.transient().then(|| error.retry_after().unwrap_or_default().min(MAX_HINT));
        }
    }

    /// Records an attempt that failed with a transient error. Returns the delay before the next attempt, and `true` if the failure is to be
    /// reported. Returns `None`, without recording the error, once the time limit has passed, or if the delay that the error requests would
    /// end after it.
    pub(super) fn retry(&mut self, error: &dyn Failure, policy: BackoffPolicy) -> Option<(Duration, bool)> {
        let (pending, hint) = (error.pending(), error.retry_after().map(|hint| hint.min(MAX_HINT)));
        let wait = if pending.is_some_and(|pending| pending.queued) {
            self.backoff = None;
            hint.unwrap_or(policy.initial)
        } else {
            self.backoff.get_or_insert_with(|| policy.start()).next_wait(hint)?
        };
        let Some(pending) = pending else {
            self.failed(error);
            return Some((wait, true));
        };
        self.is_pending = true;
        let error = LastError::record(&mut self.pending, error);
        let report = self.pending_reported.unwrap_or(error.since).elapsed() >= pending.report_after;
        if report {
            // From now on it counts as a failure.
            self.pending_reported = Some(Instant::now());
            let since = self.last_error.as_ref().map_or(error.since, |failed| failed.since.min(error.since));
            self.last_error = Some(LastError { since, ..error.clone() });
        }
        Some((wait, report))
    }

    /// Returns the most recent error; `None` if there was none.
    pub(super) fn most_recent(&self) -> Option<&LastError> {
        if self.is_pending { self.pending.as_ref() } else { self.last_error.as_ref() }
    }

    /// Ends the series of retries and counts a failure, because the object is requeued.
    pub(super) fn requeued(&mut self) {
        (self.backoff, self.failures) = (None, self.failures + 1);
    }
}

/// Returns the time `delay` after `start`, or the time one year after `start` if the sum cannot be represented.
pub(super) fn deadline(start: Instant, delay: Duration) -> Instant {
    start.checked_add(delay).unwrap_or_else(|| start + Duration::from_secs(86_400 * 365))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Pending;
    use crate::testing::Fault;

    #[tokio::test(start_paused = true)]
    async fn the_last_error_counts_attempts_since_the_first_failure() {
        let mut retry = RetryState::default();
        retry.failed(&Fault::transient("busy"));
        let first = retry.last_error.clone().unwrap();
        tokio::time::advance(Duration::from_secs(5)).await;
        retry.failed(&Fault::permanent("refused"));
        let second = retry.last_error.unwrap();
        assert_eq!((&*second.error, second.attempts, second.since), ("refused", 2, first.since));
    }

    #[tokio::test(start_paused = true)]
    async fn unfinished_work_counts_attempts_since_the_first_one_although_a_failure_came_between() {
        let (mut retry, policy) = (RetryState::default(), BackoffPolicy::default());
        let not_yet = Fault::transient("not yet").pending(Pending::default());
        let started = Instant::now();
        let mut shown = Vec::new();
        for error in [&not_yet, &Fault::transient("busy"), &not_yet] {
            retry.retry(error, policy).unwrap();
            let LastError { error, attempts, since, .. } = retry.most_recent().unwrap();
            shown.push((error.to_string(), *attempts, *since - started));
            tokio::time::advance(Duration::from_secs(5)).await;
        }
        let zero = Duration::ZERO;
        let expected = [("not yet", 1, zero), ("busy", 1, Duration::from_secs(5)), ("not yet", 2, zero)];
        assert_eq!(shown, expected.map(|(error, attempts, since)| (error.to_owned(), attempts, since)));
    }

    #[test]
    fn a_long_error_is_cut_between_two_characters() {
        let mut retry = RetryState::default();
        retry.failed(&Fault::permanent(&"€".repeat(1000)));
        assert_eq!(*retry.last_error.unwrap().error, format!("{} ...", "€".repeat(341)));
    }
}
