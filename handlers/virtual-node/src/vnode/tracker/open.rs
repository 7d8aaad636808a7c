//! The operations in progress. No I/O; the time is an argument.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use staffetta_driver::tunnel::{NodeId, OperationResponseResult};
use staffetta_driver::{ContainerKey, Uid};
use tokio::time::Instant;

use super::action_name;
use super::ended::{EndedOperation, OperationOutcome};
use crate::vnode::{ContainerAction, Operation, OperationStage};

/// The operations in progress.
#[derive(Debug, Default)]
pub(super) struct OpenOperations(HashMap<OperationId, OpenOperation>);

/// The fields of an operation that distinguish it from others in progress.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct OperationId(NodeId, Uid, ContainerKey, ContainerAction);

/// An operation that was asked for and has not ended, with the times of its stages.
#[derive(Debug)]
struct OpenOperation {
    operation: Operation,
    asked: Instant,
    /// The time at which the tunnel took the request.
    sent: Option<Instant>,
    /// The time at which it was last reported as stuck.
    reported: Option<Instant>,
}

impl OpenOperations {
    /// Records a step, and returns the operation that it ends. Asking for an operation again ends the earlier one.
    pub(super) fn record(
        &mut self,
        operation: &Operation,
        stage: OperationStage,
        now: Instant,
    ) -> Option<EndedOperation> {
        let Operation { base, pod, key, action, .. } = operation;
        let id = OperationId(base.clone(), pod.uid.clone(), key.clone(), *action);
        let outcome = match stage {
            OperationStage::Asked => {
                let open =
                    OpenOperation { operation: operation.clone(), asked: now, sent: None, reported: None };
                let earlier = self.0.insert(id, open)?;
                return Some(earlier.end(OperationOutcome::Abandoned, now));
            }
            OperationStage::Sent => {
                self.0.get_mut(&id)?.sent = Some(now);
                return None;
            }
            OperationStage::Refused => OperationOutcome::Refused,
            OperationStage::Answered(answer) => match answer.result {
                OperationResponseResult::Success => OperationOutcome::Success,
                OperationResponseResult::Fail => OperationOutcome::Failure,
            },
            OperationStage::TimedOut => OperationOutcome::Failure,
            OperationStage::Observed => OperationOutcome::Observed,
            OperationStage::Abandoned => OperationOutcome::Abandoned,
        };
        Some(self.0.remove(&id)?.end(outcome, now))
    }

    /// Returns the operations that are stuck and were not reported for `repeat_after`, each with a sentence for people.
    pub(super) fn stuck(
        &mut self,
        now: Instant,
        stuck_after: Duration,
        repeat_after: Duration,
    ) -> Vec<(Operation, String)> {
        let is_due = |open: &&mut OpenOperation| {
            let again = open.reported.is_none_or(|last| now.saturating_duration_since(last) >= repeat_after);
            open.is_stuck(now, stuck_after) && again
        };
        let due = self.0.values_mut().filter(is_due);
        let mut stuck: Vec<_> = due
            .map(|open| {
                open.reported = Some(now);
                (open.operation.clone(), open.text(now))
            })
            .collect();
        stuck.sort_by(|(one, _), (other, _)| {
            (&one.base, one.key.as_str()).cmp(&(&other.base, other.key.as_str()))
        });
        stuck
    }

    /// Returns the number of operations by tunnel and action, and how many of them are stuck.
    pub(super) fn counts(
        &self,
        now: Instant,
        stuck_after: Duration,
    ) -> Vec<(Arc<str>, ContainerAction, [u64; 2])> {
        let mut counts: BTreeMap<_, (Arc<str>, ContainerAction, [u64; 2])> = BTreeMap::new();
        for open in self.0.values() {
            let Operation { tunnel, action, .. } = &open.operation;
            let key = (Arc::clone(tunnel), action_name(*action));
            let (_, _, [all, stuck]) =
                counts.entry(key).or_insert_with(|| (Arc::clone(tunnel), *action, [0; 2]));
            *all += 1;
            *stuck += u64::from(open.is_stuck(now, stuck_after));
        }
        counts.into_values().collect()
    }
}

impl OpenOperation {
    /// Returns `true` if the operation has lasted for `stuck_after` or longer.
    fn is_stuck(&self, now: Instant, stuck_after: Duration) -> bool {
        now.saturating_duration_since(self.asked) >= stuck_after
    }

    /// Ends the operation with this outcome.
    fn end(self, outcome: OperationOutcome, now: Instant) -> EndedOperation {
        let took = now.saturating_duration_since(self.asked);
        EndedOperation { operation: self.operation, outcome, took }
    }

    /// Returns the operation in words, with its age, for people.
    fn text(&self, now: Instant) -> String {
        let Operation { tunnel, base, key, action, .. } = &self.operation;
        let seconds = |since: Instant| now.saturating_duration_since(since).as_secs();
        let action = action_name(*action);
        let Some(sent) = self.sent.map(seconds) else {
            let asked = seconds(self.asked);
            return format!(
                "the request to {action} module {key} on base {base} waits for {asked} s, and the tunnel {tunnel} has not taken it"
            );
        };
        format!(
            "the request to {action} module {key} was sent to base {base} {sent} s ago, and it has not answered; look at the log of the base"
        )
    }
}

#[cfg(test)]
mod tests {
    use staffetta_driver::tunnel::ContainerOperationResponseData;

    use super::super::tests::operation;
    use super::*;

    fn answered(result: OperationResponseResult) -> OperationStage {
        let (container_key, reason, message) = ("cart:1".into(), String::new(), String::new());
        OperationStage::Answered(ContainerOperationResponseData { container_key, result, reason, message })
    }

    #[test]
    fn an_operation_ends_once_with_its_outcome_and_its_time() {
        let (mut open, now) = (OpenOperations::default(), Instant::now());
        let after = |seconds| now + Duration::from_secs(seconds);
        let cart = operation("cart:1", ContainerAction::Start);
        for (stage, outcome) in [
            (answered(OperationResponseResult::Success), OperationOutcome::Success),
            (answered(OperationResponseResult::Fail), OperationOutcome::Failure),
            (OperationStage::Refused, OperationOutcome::Refused),
            (OperationStage::TimedOut, OperationOutcome::Failure),
            (OperationStage::Observed, OperationOutcome::Observed),
            (OperationStage::Abandoned, OperationOutcome::Abandoned),
        ] {
            assert_eq!(open.record(&cart, OperationStage::Asked, now), None);
            assert_eq!(open.record(&cart, OperationStage::Sent, after(1)), None);
            let ended = open.record(&cart, stage.clone(), after(3)).unwrap();
            assert_eq!((ended.outcome, ended.took.as_secs(), &ended.operation), (outcome, 3, &cart));
            assert_eq!(open.record(&cart, stage, after(4)), None);
        }
    }

    #[test]
    fn a_repetition_ends_what_it_repeats_and_other_operations_go_on() {
        let (mut open, now) = (OpenOperations::default(), Instant::now());
        let (cart, stop) =
            (operation("cart:1", ContainerAction::Start), operation("cart:1", ContainerAction::Stop));
        open.record(&cart, OperationStage::Asked, now);
        open.record(&stop, OperationStage::Asked, now);
        let ended = open.record(&cart, OperationStage::Asked, now).unwrap();
        assert_eq!(ended.outcome, OperationOutcome::Abandoned);
        let http: Arc<str> = "http".into();
        let counts = open.counts(now, Duration::from_secs(1));
        let expected =
            [ContainerAction::Start, ContainerAction::Stop].map(|action| (Arc::clone(&http), action, [1, 0]));
        assert_eq!(counts, expected);
    }

    #[test]
    fn a_stuck_operation_says_what_it_waits_for() {
        let (mut open, now) = (OpenOperations::default(), Instant::now());
        let (minute, later) = (Duration::from_secs(60), now + Duration::from_secs(61));
        open.record(&operation("cart:1", ContainerAction::Start), OperationStage::Asked, now);
        let sent = operation("search:1", ContainerAction::Stop);
        open.record(&sent, OperationStage::Asked, now);
        open.record(&sent, OperationStage::Sent, now);
        assert!(open.stuck(now + minute / 2, minute, minute).is_empty());
        let texts: Vec<_> = open.stuck(later, minute, minute).into_iter().map(|(_, text)| text).collect();
        assert!(texts[0].contains("waits for 61 s") && texts[0].contains("tunnel http"), "{texts:?}");
        assert!(texts[1].contains("sent to base b-1 61 s ago"), "{texts:?}");
        assert!(open.stuck(later, minute, minute).is_empty(), "they were just reported");
    }
}
