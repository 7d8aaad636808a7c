//! The numbers of messages in the queues of one handler.

use std::collections::BTreeMap;
use std::time::Duration;

use staffetta_handler::Phase;

use super::PhaseName;
use crate::pipeline::Chain;

/// The numbers of messages in the queues of one handler, and the times of its running invocations.
pub(super) struct QueueCounts {
    /// The number of messages in each phase.
    pub(super) by_phase: BTreeMap<PhaseName, usize>,
    /// The time that the running invocation which began first has taken so far; zero if none is running.
    pub(super) longest: Duration,
    /// The total time that all running invocations have taken so far.
    pub(super) unfinished: Duration,
}

impl QueueCounts {
    /// Counts the messages in the queues of `chain`; none if the handler is not set up yet.
    pub(super) fn of(chain: Option<&Chain>) -> Self {
        let by_phase = PhaseName::ALL.map(|phase| (phase, 0)).into();
        let mut counts = Self { by_phase, longest: Duration::ZERO, unfinished: Duration::ZERO };
        for entry in chain.map(Chain::entries).into_iter().flatten() {
            *counts.by_phase.entry(entry.phase.into()).or_default() += 1;
            if entry.phase == Phase::Running {
                let time = entry.since.elapsed();
                counts.longest = counts.longest.max(time);
                counts.unfinished += time;
            }
        }
        counts
    }
}
