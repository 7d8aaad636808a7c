//! The failures of an object, from the first one until it is handled with success.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::backoff::{Backoff, BackoffPolicy};
use super::failure::{Failure, causes};
use crate::event::{Identity, truncated};

/// The last error of an object since it was last handled with success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastError {
    /// The error with its causes, in one line, cut after 1024 bytes.
    pub error: Arc<str>,
    /// Its [reason](Failure::reason).
    pub reason: &'static str,
    /// The number of failed attempts.
    pub attempts: u32,
    /// The time at which the first of them failed.
    pub since: Instant,
}

impl LastError {
    /// Records one more failed attempt, now.
    fn record(last: &mut Option<Self>, error: &dyn Failure) -> Self {
        let (attempts, since) =
            last.as_ref().map_or_else(|| (0, Instant::now()), |last| (last.attempts, last.since));
        let (attempts, reason) = (attempts.saturating_add(1), error.reason());
        last.insert(Self { error: truncated(causes(error)).into(), reason, attempts, since }).clone()
    }
}

/// The [`RetryState`] of an object that has failed; `None` for most objects, hence the box.
pub(super) type RetryMemory = Option<Box<RetryState>>;

/// The failures of an object since it was last handled with success. They pass to the message that takes over.
#[derive(Clone, Debug, Default)]
pub(super) struct RetryState {
    /// The back-off of the current series of retries.
    backoff: Option<Backoff>,
    /// The number of times the object was requeued after a failure.
    pub(super) failures: u32,
    /// The last error.
    pub(super) last_error: Option<LastError>,
    /// The last error that was only [pending](Failure::pending).
    pub(super) pending: Option<LastError>,
    /// The error because of which it waits.
    pub(super) shown: Option<LastError>,
    /// The time of the last report of pending work.
    pending_reported: Option<Instant>,
    /// The object on which the failure was reported.
    pub(super) reported_on: Option<Arc<Identity>>,
}

impl RetryState {
    /// Records a failed attempt.
    pub(super) fn failed(&mut self, error: &dyn Failure) {
        self.shown = Some(LastError::record(&mut self.last_error, error));
    }

    /// Records an attempt that failed with a transient error. Returns the wait before the next one, and `true` if the failure is to
    /// be reported; `None` once the time limit has passed.
    pub(super) fn retry(&mut self, error: &dyn Failure, policy: BackoffPolicy) -> Option<(Duration, bool)> {
        let (pending, hint) = (error.pending(), error.retry_after());
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
        let error = LastError::record(&mut self.pending, error);
        let report = self.pending_reported.unwrap_or(error.since).elapsed() >= pending.report_after;
        if report {
            // From now on it counts as a failure.
            self.pending_reported = Some(Instant::now());
            let since = self.last_error.as_ref().map_or(error.since, |failed| failed.since.min(error.since));
            self.last_error = Some(LastError { since, ..error.clone() });
        }
        self.shown = Some(error);
        Some((wait, report))
    }

    /// Ends the series of retries: the object is requeued.
    pub(super) fn requeued(&mut self) {
        (self.backoff, self.failures) = (None, self.failures + 1);
    }
}

/// The end of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It was handled, or is not to be handled again.
    #[default]
    Done,
    /// Its retries ended early because a queued message supersedes it.
    Superseded,
    /// It failed and is to be handled again after this delay.
    Requeue(Duration),
}

/// The time `delay` after `start`; a year after it if that cannot be represented.
pub(super) fn deadline(start: Instant, delay: Duration) -> Instant {
    start.checked_add(delay).unwrap_or_else(|| start + Duration::from_secs(86_400 * 365))
}

#[cfg(test)]
mod tests {
    use super::*;
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

    #[test]
    fn a_long_error_is_cut_between_two_characters() {
        let mut retry = RetryState::default();
        retry.failed(&Fault::permanent(&"€".repeat(1000)));
        assert_eq!(*retry.last_error.unwrap().error, format!("{} ...", "€".repeat(341)));
    }
}
