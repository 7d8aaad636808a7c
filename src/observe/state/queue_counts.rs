//! The numbers of messages (events and triggers) in the queues of one handler.

use std::collections::BTreeMap;
use std::time::Duration;

use staffetta_handler::Phase;
use tokio::time::Instant;

use super::PhaseName;
use crate::engine::pipeline::Chain;

/// The numbers of messages in the queues of one handler, and the times of its running invocations.
pub(super) struct QueueCounts {
    /// The number of messages in each phase.
    pub(super) by_phase: BTreeMap<PhaseName, usize>,
    /// The time that the running invocation which began first has taken so far; zero if none is running.
    pub(super) longest: Duration,
    /// The total time that all running invocations have taken so far.
    pub(super) unfinished: Duration,
    /// The number of messages whose objects have failed for more than [`LASTING`].
    pub(super) failing: usize,
}

/// The time after which a failure is not a passing one.
const LASTING: Duration = Duration::from_secs(60);

impl QueueCounts {
    /// Counts the messages in the queues of `chain`. If that is `None`, because the handler is not set up yet, all counts are 0.
    pub(super) fn of(chain: Option<&Chain>) -> Self {
        let by_phase = PhaseName::ALL.map(|phase| (phase, 0)).into();
        let mut counts = Self { by_phase, longest: Duration::ZERO, unfinished: Duration::ZERO, failing: 0 };
        if let Some(chain) = chain {
            chain.for_each_queued(|entry| counts.add(entry.phase, entry.since, entry.failing_since()));
        }
        counts
    }

    /// Counts one message that has been in `phase` since `since`, and whose object fails since `failing_since`, if it does.
    fn add(&mut self, phase: Phase, since: Instant, failing_since: Option<Instant>) {
        *self.by_phase.entry(phase.into()).or_default() += 1;
        self.failing += usize::from(failing_since.is_some_and(|since| since.elapsed() > LASTING));
        if phase == Phase::Running {
            let time = since.elapsed();
            self.longest = self.longest.max(time);
            self.unfinished += time;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_running_messages_take_time() {
        let mut counts = QueueCounts::of(None);
        let start = Instant::now();
        tokio::time::advance(Duration::from_secs(9)).await;
        let at = |seconds| start + Duration::from_secs(seconds);
        for (phase, since) in [(Phase::Held, 0), (Phase::Running, 4), (Phase::Queued, 1), (Phase::Running, 2)]
        {
            counts.add(phase, at(since), None);
        }
        assert_eq!((counts.longest.as_secs(), counts.unfinished.as_secs()), (7, 5 + 7));
        let counted = [PhaseName::Held, PhaseName::Queued, PhaseName::Running, PhaseName::Failed];
        assert_eq!(counted.map(|phase| counts.by_phase[&phase]), [1, 1, 2, 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_of_more_than_a_minute_count_in_any_phase() {
        let mut counts = QueueCounts::of(None);
        let start = Instant::now();
        tokio::time::advance(Duration::from_secs(61)).await;
        let now = Instant::now();
        counts.add(Phase::Running, now, Some(start));
        counts.add(Phase::Failed { at: now }, now, Some(start));
        counts.add(Phase::Retrying { at: now }, now, Some(now));
        counts.add(Phase::Queued, start, None);
        assert_eq!(counts.failing, 2);
    }
}
