//! The outcome of attempts to create and to delete groups of a warm pool, and the back-off after failed ones.

use std::time::Duration;

/// The reason why an attempt did not create all requested groups of a warm pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortfall {
    /// A quota or the addresses of a subnet are exhausted. Some may become available at any time.
    Exhausted,
    /// The external system accepts no more requests for this duration.
    Throttled(Duration),
    /// The required configuration cannot be used: a part of it does not exist or is not permitted. Other configurations may work.
    Refused,
    /// The external system failed.
    Failed,
}

/// The result of an attempt to create groups of a warm pool ([`PoolKind::Group`](super::PoolKind::Group)). Fewer groups than
/// requested are normal, with or without a shortfall.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grown<G> {
    /// The groups that the attempt has created and that were not reported before.
    pub got: Vec<G>,
    /// The number of groups that the same attempt is still creating; 0 if the attempt has ended.
    pub rest: usize,
    /// The reason why fewer groups were created than requested; `None` if there is none. An attempt whose last result has neither
    /// groups nor a reason counts as [`Failed`](Shortfall::Failed).
    pub shortfall: Option<Shortfall>,
}

/// The back-off after failed attempts to create or to delete groups of a warm pool: 1 s after the first failure, doubled by each further
/// one, at most 30 s. A longer delay from [`Shortfall::Throttled`] is used instead. A success ends the back-off. The delay does not depend
/// on the number of waiting owners. A pool has one value for all its attempts to create groups, and another one for those to delete them.
/// An exhausted resource that several pools share has one, too.
#[derive(Clone, Debug, Default)]
pub(crate) struct AttemptBackoff {
    /// The number of consecutive failed attempts.
    failures: u32,
    /// The time before which no attempt is made.
    until: Duration,
}

/// The back-off after the first failed attempt. It doubles with each further one.
const FIRST_DELAY: Duration = Duration::from_secs(1);
/// The maximum back-off after failed attempts, unless the external system requests a longer delay.
const MAX_DELAY: Duration = Duration::from_secs(30);

impl AttemptBackoff {
    /// Records the outcome of an attempt; `None` is a success.
    pub(crate) fn record(&mut self, shortfall: Option<Shortfall>, now: Duration) {
        let Some(shortfall) = shortfall else {
            *self = Self::default();
            return;
        };
        let backoff =
            FIRST_DELAY.saturating_mul(1_u32.checked_shl(self.failures).unwrap_or(u32::MAX)).min(MAX_DELAY);
        let wait = if let Shortfall::Throttled(hint) = shortfall { hint.max(backoff) } else { backoff };
        self.failures = self.failures.saturating_add(1);
        self.until = now.saturating_add(wait);
    }

    /// Returns the remaining delay before the next attempt; `None` if it may be made now.
    pub(crate) fn remaining(&self, now: Duration) -> Option<Duration> {
        self.until.checked_sub(now).filter(|remaining| !remaining.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_up_to_its_longest_obeys_a_hint_and_ends_with_success() {
        let mut pressure = AttemptBackoff::default();
        let now = Duration::from_secs(100);
        let mut wait = |shortfall| {
            pressure.record(shortfall, now);
            pressure.remaining(now).map_or(0, |wait| wait.as_secs())
        };
        assert_eq!([0; 7].map(|_| wait(Some(Shortfall::Exhausted))), [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(wait(Some(Shortfall::Throttled(Duration::from_secs(90)))), 90);
        assert_eq!(
            wait(Some(Shortfall::Throttled(Duration::from_secs(1)))),
            30,
            "a hint shortens no back-off"
        );
        assert_eq!((wait(None), wait(Some(Shortfall::Failed))), (0, 1));
    }
}
