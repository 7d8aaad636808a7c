//! The operations in progress. No I/O; the time is an argument.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::action_name;
use super::ended::{EndedOperation, OperationOutcome};
use crate::vnode::{ContainerAction, Operation};

/// The operations on the modules of bases that are in progress, by id.
#[derive(Debug, Default)]
pub(super) struct OpenOperations {
    by_id: BTreeMap<u64, OpenOperation>,
    /// The number of operations that have begun, which is the id of the next one.
    begun: u64,
}

/// An operation that was asked for and has not ended, with the times of its stages.
#[derive(Debug)]
struct OpenOperation {
    operation: Arc<Operation>,
    asked: Instant,
    /// The time at which the tunnel took the request; `None` before that.
    sent: Option<Instant>,
    /// The time at which the operation was last reported as stuck; `None` if it was not.
    reported: Option<Instant>,
}

impl OpenOperations {
    /// Adds an operation that is asked for now, and returns its id.
    pub(super) fn begin(&mut self, operation: Arc<Operation>, now: Instant) -> u64 {
        let id = self.begun;
        self.begun += 1;
        self.by_id.insert(id, OpenOperation { operation, asked: now, sent: None, reported: None });
        id
    }

    /// Records that the tunnel has taken the request of an operation.
    pub(super) fn sent(&mut self, id: u64, now: Instant) {
        if let Some(open) = self.by_id.get_mut(&id) {
            open.sent = Some(now);
        }
    }

    /// Removes and returns an operation that ends; `None` if it has ended before.
    pub(super) fn end(&mut self, id: u64, outcome: OperationOutcome, now: Instant) -> Option<EndedOperation> {
        let OpenOperation { operation, asked, sent, .. } = self.by_id.remove(&id)?;
        let since = |time| now.saturating_duration_since(time);
        Some(EndedOperation { operation, outcome, took: since(asked), since_sent: sent.map(since) })
    }

    /// Returns the operations that are stuck and were not reported for `repeat_after`, each with a sentence for people. Records that they
    /// are reported now.
    pub(super) fn stuck(
        &mut self,
        now: Instant,
        stuck_after: Duration,
        repeat_after: Duration,
    ) -> Vec<(Arc<Operation>, String)> {
        let is_due = |open: &&mut OpenOperation| {
            let again = open.reported.is_none_or(|last| now.saturating_duration_since(last) >= repeat_after);
            open.is_stuck(now, stuck_after) && again
        };
        let due = self.by_id.values_mut().filter(is_due);
        let mut stuck: Vec<_> = due
            .map(|open| {
                open.reported = Some(now);
                (Arc::clone(&open.operation), open.text(now))
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
        for open in self.by_id.values() {
            let Operation { tunnel, action, .. } = &*open.operation;
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

    /// Returns the operation in words, with its age, for people.
    fn text(&self, now: Instant) -> String {
        let Operation { tunnel, base, key, action, .. } = &*self.operation;
        let seconds = |since: Instant| now.saturating_duration_since(since).as_secs();
        let action = action_name(*action);
        let Some(sent) = self.sent.map(seconds) else {
            let asked = seconds(self.asked);
            return format!(
                "the request to {action} module {key} on base {base} waits for {asked} s, and the tunnel {tunnel} has not taken it"
            );
        };
        format!(
            "the request to {action} module {key} was sent to base {base} {sent} s ago, and its reports do not show the effect; look at the log of the base"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::operation;
    use super::*;

    #[test]
    fn an_operation_ends_once_with_its_outcome_and_its_time() {
        let (mut open, now) = (OpenOperations::default(), Instant::now());
        let after = |seconds| now + Duration::from_secs(seconds);
        for outcome in OperationOutcome::ALL {
            let cart = Arc::new(operation("cart:1", ContainerAction::Start));
            let id = open.begin(Arc::clone(&cart), now);
            open.sent(id, after(1));
            let ended = open.end(id, outcome, after(3)).unwrap();
            assert_eq!(ended.since_sent, Some(Duration::from_secs(2)));
            assert_eq!((ended.outcome, ended.took.as_secs(), &ended.operation), (outcome, 3, &cart));
            assert_eq!(open.end(id, outcome, after(4)), None);
            let unsent = open.begin(cart, now);
            assert_eq!(open.end(unsent, outcome, after(3)).unwrap().since_sent, None);
        }
    }

    #[test]
    fn operations_of_both_actions_are_counted_by_themselves() {
        let (mut open, now) = (OpenOperations::default(), Instant::now());
        for action in [ContainerAction::Start, ContainerAction::Stop] {
            open.begin(operation("cart:1", action).into(), now);
        }
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
        open.begin(operation("cart:1", ContainerAction::Start).into(), now);
        let sent = open.begin(operation("search:1", ContainerAction::Stop).into(), now);
        open.sent(sent, now);
        assert!(open.stuck(now + minute / 2, minute, minute).is_empty());
        let texts: Vec<_> = open.stuck(later, minute, minute).into_iter().map(|(_, text)| text).collect();
        assert!(texts[0].contains("waits for 61 s") && texts[0].contains("tunnel http"), "{texts:?}");
        assert!(texts[1].contains("sent to base b-1 61 s ago"), "{texts:?}");
        assert!(open.stuck(later, minute, minute).is_empty(), "they were just reported");
    }
}
