//! Exponential back-off with jitter: wraps the crate `backoff`, as `drivers/openstack/src/identity/backoff.rs` does, and uses tokio's clock.

use std::time::{Duration, Instant};

use backoff::Clock;
use backoff::backoff::Backoff as _;
use backoff::exponential::{ExponentialBackoff, ExponentialBackoffBuilder};

/// The delays between the attempts of a repeated operation. The first delay is `initial`; each further delay is twice as long as the
/// one before, up to `max`. There are no more attempts once `limit` has passed since [`start`](Self::start).
///
/// ```
/// use std::time::Duration;
/// use staffetta_handler::BackoffPolicy;
///
/// const POLICY: BackoffPolicy = BackoffPolicy::unlimited(Duration::from_secs(1), Duration::from_secs(60));
///
/// let mut backoff = POLICY.start();
/// // After each failed attempt: sleep for the delay, which obeys a `Retry-After` where the error carries one.
/// assert!(backoff.delay(None) <= Duration::from_millis(1250));
/// assert_eq!(backoff.delay(Some(Duration::from_secs(7))), Duration::from_secs(7));
/// assert_eq!(backoff.attempts(), 2);
/// // After a success:
/// backoff.reset();
/// assert_eq!(backoff.attempts(), 0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffPolicy {
    /// The first delay, before jitter of ±10 %.
    pub initial: Duration,
    /// The longest delay, before jitter of ±10 %.
    pub max: Duration,
    /// The time after [`start`](Self::start) at which the attempts end; `None` if they never end. [`Retry`](crate::Retry) starts the series
    /// at the first failure.
    pub limit: Option<Duration>,
}

/// The largest share by which a delay is randomly shortened or extended, so that objects that failed at the same time are not all
/// retried at the same time.
const JITTER: f64 = 0.1;

/// The longest delay that an error can request with [`Failure::retry_after`](crate::Failure::retry_after), because servers choose it.
pub(crate) const MAX_HINT: Duration = Duration::from_secs(300);

impl Default for BackoffPolicy {
    /// Returns the policy with delays from 1 s to 60 s, for 500 s: the values that Kuryr uses for retries.
    fn default() -> Self {
        Self {
            limit: Some(Duration::from_secs(500)),
            ..Self::unlimited(Duration::from_secs(1), Duration::from_secs(60))
        }
    }
}

impl BackoffPolicy {
    /// Returns the policy with delays from `initial` to `max` and without a time limit.
    pub const fn unlimited(initial: Duration, max: Duration) -> Self {
        Self { initial, max, limit: None }
    }

    /// Starts a series of attempts, whose time limit begins now.
    pub fn start(self) -> Backoff {
        let mut inner = exponential(self.initial, self.max, JITTER);
        // The builder takes the start from the system's clock; this takes it from tokio's.
        inner.reset();
        Backoff { inner, policy: self, attempts: 0 }
    }

    /// Returns the delay after which an object is handled again when its retries have ended with a failure. `failures` is the number of
    /// earlier such failures: the delay is `initial` for 0, and doubles with each up to `max`, with jitter. It is at least `hint`, but
    /// a hint of more than five minutes counts as five minutes.
    pub fn requeue_delay(self, failures: u32, hint: Option<Duration>) -> Duration {
        let delay = self.initial.saturating_mul(2_u32.saturating_pow(failures)).min(self.max);
        let delay = exponential(delay, self.max, JITTER).next_backoff().unwrap_or(self.max);
        delay.max(hint.unwrap_or_default().min(MAX_HINT))
    }
}

/// The progress of one series of attempts under a [`BackoffPolicy`].
#[derive(Clone, Debug)]
pub struct Backoff {
    inner: ExponentialBackoff<TokioClock>,
    policy: BackoffPolicy,
    attempts: u32,
}

impl Backoff {
    /// Counts a failed attempt and returns the delay before the next attempt; `None` once the time limit has passed.
    ///
    /// A `hint`, such as the `Retry-After` of a server, replaces the delay exactly, but for five minutes at most. If the hint ends
    /// after the time limit, the result is `None`. Without a hint, the delay is shortened so that the last attempt is made at the limit.
    pub fn next_wait(&mut self, hint: Option<Duration>) -> Option<Duration> {
        self.attempts = self.attempts.saturating_add(1);
        let remaining = match self.policy.limit {
            Some(limit) => limit.checked_sub(self.inner.get_elapsed_time()).filter(|left| !left.is_zero())?,
            None => Duration::MAX,
        };
        match hint.map(|hint| hint.min(MAX_HINT)) {
            Some(hint) => (hint <= remaining).then_some(hint),
            None => self.inner.next_backoff().map(|wait| wait.min(remaining)),
        }
    }

    /// Counts a failed attempt and returns the delay before the next attempt, for a policy without a time limit: unlike
    /// [`next_wait`](Self::next_wait), it never returns `None`, but `max` instead.
    pub fn delay(&mut self, hint: Option<Duration>) -> Duration {
        self.next_wait(hint).unwrap_or(self.policy.max)
    }

    /// Returns the number of failed attempts since the start or the last [`reset`](Self::reset).
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Starts a new series of attempts, after a success.
    pub fn reset(&mut self) {
        *self = self.policy.start();
    }
}

/// Returns a random delay between zero and `max`.
pub(crate) fn random_delay(max: Duration) -> Duration {
    exponential(max / 2, max, 1.0).next_backoff().unwrap_or(max)
}

/// Returns the time `delay` after `start`, or the time one year after `start` if the sum cannot be represented.
pub(crate) fn deadline(start: tokio::time::Instant, delay: Duration) -> tokio::time::Instant {
    start.checked_add(delay).unwrap_or_else(|| start + Duration::from_secs(86_400 * 365))
}

/// Returns the unlimited series of delays that begins with `initial` and doubles up to `max`. `jitter` is the largest share by which a
/// delay is randomly shortened or extended.
fn exponential(initial: Duration, max: Duration, jitter: f64) -> ExponentialBackoff<TokioClock> {
    ExponentialBackoffBuilder::new()
        .with_initial_interval(initial)
        .with_max_interval(max)
        .with_multiplier(2.0)
        .with_randomization_factor(jitter)
        .with_max_elapsed_time(None)
        .build()
}

/// The clock of tokio, which tests can stop and advance.
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
    async fn waits_double_up_to_the_maximum_and_end_at_the_limit() {
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
        assert_eq!(backoff.delay(None), POLICY.max, "past the limit");
        backoff.reset();
        assert!(backoff.next_wait(None).expect("a new series") <= Duration::from_millis(1250));
        assert_eq!(backoff.attempts(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hint_replaces_the_wait_unless_it_ends_after_the_limit() {
        let mut backoff = POLICY.start();
        assert_eq!(backoff.next_wait(Some(Duration::from_secs(20))), Some(Duration::from_secs(20)));
        tokio::time::advance(Duration::from_secs(50)).await;
        assert_eq!(backoff.next_wait(Some(Duration::from_secs(20))), None);
    }

    #[tokio::test(start_paused = true)]
    async fn no_server_can_make_a_watch_or_a_retry_sleep_for_more_than_five_minutes() {
        let mut backoff = REQUEUE.start();
        assert_eq!(backoff.delay(Some(Duration::from_secs(u64::from(u32::MAX)))), Duration::from_secs(300));
    }

    const REQUEUE: BackoffPolicy =
        BackoffPolicy::unlimited(Duration::from_secs(60), Duration::from_secs(900));

    #[test]
    fn the_requeue_delay_doubles_up_to_its_maximum() {
        for (failures, minutes) in [(0, 1.0), (1, 2.0), (2, 4.0), (3, 8.0), (4, 15.0), (40, 15.0)] {
            let delay = REQUEUE.requeue_delay(failures, None).as_secs_f64() / 60.0;
            assert!((delay / minutes - 1.0).abs() < 0.101, "{delay} min after {failures} failures");
        }
    }

    #[test]
    fn a_hint_extends_the_requeue_delay_up_to_five_minutes() {
        let delay = |hint| REQUEUE.requeue_delay(0, Some(Duration::from_secs(hint))).as_secs();
        assert!((54..=66).contains(&delay(0)) && (54..=66).contains(&delay(50)));
        assert_eq!((delay(240), delay(300), delay(86_400)), (240, 300, 300));
    }

    #[test]
    fn objects_that_failed_together_are_requeued_over_a_fifth_of_the_delay() {
        let mut seconds: Vec<_> = (0..10_000).map(|_| REQUEUE.requeue_delay(0, None).as_secs_f64()).collect();
        seconds.sort_by(f64::total_cmp);
        assert!(seconds[0] >= 54.0 && seconds[9_999] <= 66.001, "{} to {}", seconds[0], seconds[9_999]);
        let most = seconds.windows(500).map(|window| window[499] - window[0]).fold(f64::MAX, f64::min);
        assert!(most > 0.3, "a twentieth of them is requeued within {most} s, when 0.6 were even");
    }
}
