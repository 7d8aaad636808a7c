//! Where the failures go that nobody can mend by repeating.

use std::time::Duration;

use tracing::{debug, error};

use crate::backoff::spread;
use crate::failure::{HandlerError, causes};
use crate::message::Message;
use crate::turn::Turn;

/// Learns of every failure, and decides when an object that failed for good gets another chance.
pub trait Report<E: Message>: Send + Sync + 'static {
    /// `event` failed with `error`.
    fn failed(&self, event: &E, error: &HandlerError, turn: &Turn<'_>);

    /// `event` failed with `error` for a passing reason, and is tried again after `wait`.
    fn will_retry(&self, event: &E, error: &HandlerError, wait: Duration, turn: &Turn<'_>) {
        let _ = (event, error, wait, turn);
    }

    /// `event` was handled with success after what `turn` still knows had gone wrong with its object.
    fn recovered(&self, event: &E, turn: &Turn<'_>) {
        let _ = (event, turn);
    }
}

/// When an event that failed for good is pushed again: after `initial`, then twice as late each time, up to `max`; each time up
/// to a tenth earlier or later, so that objects that failed together do not come back together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResyncPolicy {
    /// The time after the first failure.
    pub initial: Duration,
    /// The longest time.
    pub max: Duration,
}

/// However long an error asks to be left alone, after this time it is looked again.
const LONGEST: Duration = Duration::from_secs(3600);

impl Default for ResyncPolicy {
    /// One minute, doubling to 15 minutes.
    fn default() -> Self {
        Self { initial: Duration::from_secs(60), max: Duration::from_secs(900) }
    }
}

impl ResyncPolicy {
    /// The time until the event is pushed again, after `failures` failures before this one. It differs from call to call.
    pub fn delay(self, failures: u32) -> Duration {
        spread(self.mean(failures))
    }

    /// The same after `error`: not before the time that it asks for, as far as that is within an hour.
    pub fn delay_after(self, error: &HandlerError, failures: u32) -> Duration {
        let asked = error.retry_after().unwrap_or_default().min(LONGEST);
        self.delay(failures).max(asked)
    }

    fn mean(self, failures: u32) -> Duration {
        self.initial.saturating_mul(1_u32.checked_shl(failures).unwrap_or(u32::MAX)).min(self.max)
    }
}

/// Writes one structured line for each failure and asks for another chance.
pub struct LogReport {
    handler: String,
    resync: ResyncPolicy,
}

impl LogReport {
    /// Reports for the handler of that name.
    pub fn new(handler: impl Into<String>) -> Self {
        Self { handler: handler.into(), resync: ResyncPolicy::default() }
    }

    /// Pushes failed events again by `resync`.
    #[must_use]
    pub fn resync(mut self, resync: ResyncPolicy) -> Self {
        self.resync = resync;
        self
    }
}

impl<E: Message> Report<E> for LogReport {
    fn failed(&self, event: &E, error: &HandlerError, turn: &Turn<'_>) {
        let subject = event.subject();
        let again = self.resync.delay_after(error, turn.failures());
        error!(kind = %subject.kind, namespace = subject.namespace, name = subject.name, uid = subject.uid,
            handler = self.handler, attempt = turn.attempts(), change = ?event.change(), again_s = again.as_secs(), error = causes(&**error),
            "handling failed");
        turn.push_again(again);
    }

    fn will_retry(&self, event: &E, error: &HandlerError, wait: Duration, turn: &Turn<'_>) {
        let subject = event.subject();
        debug!(kind = %subject.kind, namespace = subject.namespace, name = subject.name, uid = subject.uid,
            handler = self.handler, attempt = turn.attempts(), wait_ms = wait.as_millis(), error = causes(&**error), "will try again");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Fault;

    #[test]
    fn the_time_until_the_next_chance_doubles_up_to_its_longest() {
        let policy = ResyncPolicy::default();
        let minutes: Vec<_> = [0, 1, 2, 3, 4, 40].map(|failures| policy.mean(failures).as_secs() / 60).into();
        assert_eq!(minutes, [1, 2, 4, 8, 15, 15]);
    }

    #[test]
    fn who_asks_to_be_left_alone_for_longer_is_up_to_an_hour() {
        let again = |asked| {
            let error = Fault::transient("busy").after(Duration::from_secs(asked)).into();
            ResyncPolicy::default().delay_after(&error, 0).as_secs()
        };
        assert!((54..=66).contains(&again(0)) && (54..=66).contains(&again(50)));
        assert_eq!((again(600), again(3600), again(86_400)), (600, 3600, 3600));
    }

    #[test]
    fn objects_that_failed_together_come_back_spread_over_a_fifth_of_the_time() {
        let mut seconds: Vec<_> =
            (0..10_000).map(|_| ResyncPolicy::default().delay(0).as_secs_f64()).collect();
        seconds.sort_by(f64::total_cmp);
        assert!(seconds[0] >= 54.0 && seconds[9_999] <= 66.001, "{} to {}", seconds[0], seconds[9_999]);
        let most = seconds.windows(500).map(|window| window[499] - window[0]).fold(f64::MAX, f64::min);
        assert!(most > 0.3, "a twentieth of them comes within {most} s, when 0.6 were even");
    }
}
