//! The queues of one handler.

use std::time::Duration;

use staffetta_handler::Meter;

use super::counter::Counter;
use super::histogram::{Histogram, Snapshot};

/// Counts what passes through the queues of one handler. Threads that count at a time do not wait for one another.
#[derive(Debug, Default)]
pub struct QueueMeter {
    adds: Counter,
    retries: Counter,
    waits: Histogram,
    works: Histogram,
}

impl Meter for QueueMeter {
    fn added(&self) {
        self.adds.increment();
    }

    fn waited(&self, time: Duration) {
        self.waits.observe(time);
    }

    fn worked(&self, time: Duration) {
        self.works.observe(time);
    }

    fn retried(&self) {
        self.retries.increment();
    }
}

impl QueueMeter {
    /// How many messages were taken in.
    pub fn adds(&self) -> u64 {
        self.adds.count()
    }

    /// How many attempts are followed by another.
    pub fn retries(&self) -> u64 {
        self.retries.count()
    }

    /// How long messages waited for their turn.
    pub fn waits(&self) -> Snapshot {
        self.waits.snapshot()
    }

    /// How long attempts took.
    pub fn works(&self) -> Snapshot {
        self.works.snapshot()
    }
}
