//! What the queues of one handler tell of the messages that pass through them.

use std::time::Duration;

/// Counts what passes through the queues of one handler. It is told of every message, so it must be cheap, and never wait.
pub trait Meter: Send + Sync + 'static {
    /// A message was taken in.
    fn added(&self);

    /// A message got its turn after it had waited for this time, for those before it and for leave to be at work. Time that
    /// it was parked after a failure is not counted. Where newer messages replaced one that waited, the wait is theirs together.
    fn waited(&self, time: Duration);

    /// An invocation of the handler ended after this time, or was interrupted. Each attempt of a retry is one invocation.
    /// [`Timeout`](crate::Timeout) is the link that sees where it begins and ends.
    fn worked(&self, time: Duration);

    /// A message failed for a passing reason and will be tried again.
    fn retried(&self);
}

/// Counts nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unmetered;

impl Meter for Unmetered {
    fn added(&self) {}
    fn waited(&self, _: Duration) {}
    fn worked(&self, _: Duration) {}
    fn retried(&self) {}
}
