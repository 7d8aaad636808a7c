//! Exponential back-off with jitter: the crate `backoff`, on tokio's clock. Nothing else in the project knows that crate.

use std::time::{Duration, Instant};

use backoff::Clock;
use backoff::backoff::Backoff as _;
use backoff::exponential::{ExponentialBackoff, ExponentialBackoffBuilder};

/// How the waits between two attempts grow, and when they end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BackoffPolicy {
    /// The first wait, before jitter.
    pub initial: Duration,
    /// The longest wait, before jitter.
    pub max: Duration,
    /// Attempts end this long after the first one; `None` for never.
    pub limit: Option<Duration>,
}

impl BackoffPolicy {
    /// Starts counting now.
    pub fn start(self) -> Backoff {
        let mut inner = ExponentialBackoffBuilder::<TokioClock>::new()
            .with_initial_interval(self.initial)
            .with_max_interval(self.max)
            .with_multiplier(2.0)
            .with_randomization_factor(0.25)
            .with_max_elapsed_time(None)
            .build();
        // The builder reads the system's clock; this reads ours.
        inner.reset();
        Backoff { inner, limit: self.limit, attempts: 0 }
    }
}

/// Where the back-off of one object stands.
#[derive(Clone, Debug)]
pub struct Backoff {
    inner: ExponentialBackoff<TokioClock>,
    limit: Option<Duration>,
    attempts: u32,
}

impl Backoff {
    /// How long to wait before the next attempt; `None` when time is up.
    ///
    /// A `hint` is obeyed to the letter: when it reaches past the limit, there is no further attempt. A wait of the
    /// back-off's own is cut short so that the last attempt happens at the limit.
    pub fn next_wait(&mut self, hint: Option<Duration>) -> Option<Duration> {
        self.attempts += 1;
        let left = match self.limit {
            Some(limit) => limit.checked_sub(self.inner.get_elapsed_time()).filter(|left| !left.is_zero())?,
            None => Duration::MAX,
        };
        match hint {
            Some(hint) => (hint <= left).then_some(hint),
            None => self.inner.next_backoff().map(|wait| wait.min(left)),
        }
    }

    /// How many attempts failed so far.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }
}

/// A wait up to a tenth shorter or longer than `wait`, so that many that begin together do not end together.
pub(crate) fn spread(wait: Duration) -> Duration {
    let spread = ExponentialBackoffBuilder::<TokioClock>::new()
        .with_initial_interval(wait)
        .with_max_interval(wait)
        .with_randomization_factor(0.1)
        .with_max_elapsed_time(None)
        .build()
        .next_backoff();
    spread.unwrap_or(wait)
}

#[derive(Clone, Debug, Default)]
struct TokioClock;

impl Clock for TokioClock {
    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: BackoffPolicy = BackoffPolicy {
        initial: Duration::from_secs(1),
        max: Duration::from_secs(8),
        limit: Some(Duration::from_secs(60)),
    };

    #[tokio::test(start_paused = true)]
    async fn waits_double_up_to_the_longest_and_end_at_the_limit() {
        let mut backoff = POLICY.start();
        let started = tokio::time::Instant::now();
        let mut expected = 1.0;
        while let Some(wait) = backoff.next_wait(None) {
            let seconds = wait.as_secs_f64();
            let last = started.elapsed() + wait == Duration::from_secs(60);
            assert!(
                last || (seconds >= expected * 0.74 && seconds <= expected * 1.26),
                "{seconds} for {expected}"
            );
            expected = f64::min(expected * 2.0, 8.0);
            tokio::time::advance(wait).await;
        }
        assert_eq!(started.elapsed(), Duration::from_secs(60));
    }

    #[tokio::test(start_paused = true)]
    async fn a_hint_takes_the_place_of_the_wait_unless_it_reaches_past_the_limit() {
        let mut backoff = POLICY.start();
        assert_eq!(backoff.next_wait(Some(Duration::from_secs(20))), Some(Duration::from_secs(20)));
        tokio::time::advance(Duration::from_secs(50)).await;
        assert_eq!(backoff.next_wait(Some(Duration::from_secs(20))), None);
    }
}
