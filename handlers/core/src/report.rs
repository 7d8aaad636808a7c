//! Where the failures go that nobody can mend by repeating.

use std::time::Duration;

use tracing::{debug, error};

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

/// When an event that failed for good is pushed again: after `initial`, then twice as late each time, up to `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResyncPolicy {
    /// The time after the first failure.
    pub initial: Duration,
    /// The longest time.
    pub max: Duration,
}

impl Default for ResyncPolicy {
    /// One minute, doubling to 15 minutes.
    fn default() -> Self {
        Self { initial: Duration::from_secs(60), max: Duration::from_secs(900) }
    }
}

impl ResyncPolicy {
    /// The time until the event is pushed again, after `failures` failures before this one.
    pub fn delay(self, failures: u32) -> Duration {
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
        let again = self.resync.delay(turn.failures());
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

    #[test]
    fn the_time_until_the_next_chance_doubles_up_to_its_longest() {
        let policy = ResyncPolicy::default();
        let minutes: Vec<_> =
            [0, 1, 2, 3, 4, 40].map(|failures| policy.delay(failures).as_secs() / 60).into();
        assert_eq!(minutes, [1, 2, 4, 8, 15, 15]);
    }
}
