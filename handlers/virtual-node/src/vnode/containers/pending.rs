//! An operation in progress on a container, and the evidence of its end.

use std::sync::Arc;
use std::time::Duration;

use staffetta_driver::tunnel::{ContainerOperationResponseData, ContainerState, OperationResponseResult};
use staffetta_driver::{Reason, RequestLog};
use tokio::time::Instant;

use crate::vnode::operation::ContainerAction;
use crate::vnode::tracker::{OperationOutcome, TrackedOperation};

/// The time after an answer from which reports count that do not show the effect: earlier ones may be from before the answer.
pub(super) const REPORT_DELAY: Duration = Duration::from_secs(5);

/// The time after a lost answer from which reports count that show no trace of the operation: the base may still be about to begin it.
const REPORT_DELAY_UNKNOWN: Duration = Duration::from_secs(10);

/// The time without an answer after which reports that show no trace of an operation mean that it was lost on the way to the base.
const NO_ANSWER: Duration = Duration::from_secs(60);

/// The number of reports without a trace of the operation that end it.
const LOOKS: u8 = 2;

/// The reason of an operation that was not answered, and that reports show no trace of.
const TIMED_OUT: &str = "OperationTimedOut";

/// An operation on a container that was sent, or is being sent. An answer does not end it: a report does that shows its effect or, after
/// the answer, that it has none.
#[derive(Debug)]
pub(super) struct PendingOperation {
    pub(super) action: ContainerAction,
    /// The image with which the container is started. Not used by other operations.
    pub(super) image: String,
    pub(super) requests: Arc<RequestLog>,
    /// The record of the operation in the tracker; `None` until it is [followed](super::BaseContainers::follow).
    pub(super) tracked: Option<TrackedOperation>,
    /// The answer; `None` before it arrives.
    answer: Option<ContainerOperationResponseData>,
    /// The time from which reports without a trace of the operation count.
    counts_from: Instant,
    /// The number of successive reports since then without a trace of the operation.
    looks: u8,
    /// The time at which the operation fails in any case.
    deadline: Instant,
}

/// The end of an operation.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum OperationEnd {
    /// It took effect, as far as the base has said or shown.
    Done(OperationOutcome),
    /// It failed, for this reason and with this message.
    Failed { reason: String, message: String, lost: bool },
}

impl PendingOperation {
    /// Creates an operation that is being sent, and that fails after `limit`.
    pub(super) fn new(action: ContainerAction, image: &str, limit: Duration, now: Instant) -> Self {
        Self {
            action,
            image: image.to_owned(),
            requests: Arc::default(),
            tracked: None,
            answer: None,
            counts_from: now + NO_ANSWER,
            looks: 0,
            deadline: now + limit,
        }
    }

    /// Records the answer, which the next reports are to confirm. Returns `false` if there was one before.
    pub(super) fn answered(&mut self, answer: &ContainerOperationResponseData, now: Instant) -> bool {
        if self.answer.is_some() {
            return false;
        }
        let delay = if answer.result == OperationResponseResult::Unknown {
            REPORT_DELAY_UNKNOWN
        } else {
            REPORT_DELAY
        };
        (self.answer, self.counts_from, self.looks) = (Some(answer.clone()), now + delay, 0);
        self.deadline = self.deadline.max(now + NO_ANSWER);
        true
    }

    /// Returns the end of the operation by a report with this state of its container (`None` without the container); `None` while the
    /// operation is in progress or the evidence is not sufficient.
    pub(super) fn observed(&mut self, state: Option<ContainerState>, now: Instant) -> Option<OperationEnd> {
        use ContainerState::{Activated, Deactivated, Resolved, Unresolved};
        let answered = self.answer.as_ref().map(|answer| answer.result);
        let effect = match self.action {
            // A second version of a module is loaded and not active.
            ContainerAction::Start => matches!(state, Some(Activated | Deactivated)),
            ContainerAction::Activate => state == Some(Activated),
            ContainerAction::Stop => state.is_none(),
        };
        if effect {
            let success = answered == Some(OperationResponseResult::Success);
            let outcome = if success { OperationOutcome::Success } else { OperationOutcome::Observed };
            return Some(OperationEnd::Done(outcome));
        }
        // Bases report errors after they have stopped a container, too.
        if answered == Some(OperationResponseResult::Fail) && self.action != ContainerAction::Stop {
            return Some(self.failed());
        }
        if self.action == ContainerAction::Start && matches!(state, Some(Unresolved | Resolved)) {
            self.looks = 0;
            return None;
        }
        self.looks += u8::from(now >= self.counts_from);
        if self.looks < LOOKS {
            return None;
        }
        // The base has lost at once what it has loaded.
        let was_done = self.action == ContainerAction::Start && state.is_none();
        if was_done && answered == Some(OperationResponseResult::Success) {
            return Some(OperationEnd::Done(OperationOutcome::Success));
        }
        Some(self.failed())
    }

    /// Returns the end of the operation if its time limit has passed.
    pub(super) fn timed_out(&self, now: Instant) -> Option<OperationEnd> {
        (self.deadline <= now).then(|| self.failed())
    }

    /// Returns the failure of the operation, with the words of the answer if there is one.
    fn failed(&self) -> OperationEnd {
        let failed = |reason: &str, message: String, lost| OperationEnd::Failed {
            reason: reason.to_owned(),
            message,
            lost,
        };
        match &self.answer {
            Some(answer) => match answer.result {
                // Otherwise, the tunnel says it, not the base.
                OperationResponseResult::Fail => {
                    let lost = answer.reason == Reason::Unavailable.name();
                    failed(&answer.reason, answer.message.clone(), lost)
                }
                OperationResponseResult::Unknown => failed(&answer.reason, answer.message.clone(), true),
                OperationResponseResult::Success => {
                    let message = "the base answered that it was done, and its reports do not show that";
                    failed("NotConfirmed", message.to_owned(), true)
                }
            },
            None => failed(
                TIMED_OUT,
                "the base did not answer, and its reports do not show the effect".to_owned(),
                true,
            ),
        }
    }

    /// Records the outcome in the tracker of operations, if the operation was added there.
    pub(super) fn end(&mut self, outcome: OperationOutcome) {
        if let Some(tracked) = self.tracked.take() {
            tracked.end(outcome);
        }
    }
}
