//! Operations on containers that ended, with their outcomes, for metrics.

use std::sync::Arc;
use std::time::Duration;

use crate::vnode::{ContainerAction, Operation};

/// An ended operation on a container of a base, with its outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedOperation {
    /// The operation: base, container and action, and the pod if there is one.
    pub operation: Arc<Operation>,
    /// The outcome of the operation.
    pub outcome: OperationOutcome,
    /// The time from the decision on the operation to its end.
    pub took: Duration,
    /// The time from when the tunnel took the request to the end of the operation; `None` if it had not confirmed that.
    pub since_sent: Option<Duration>,
}

impl EndedOperation {
    /// Returns the code of the outcome as trackers of Koupleless know it: `00000` for success, `01002` for a module that was not started and
    /// `01003` for one that was not stopped; `None` if the end is not known.
    pub fn code(&self) -> Option<&'static str> {
        match (self.outcome, self.operation.action) {
            (OperationOutcome::Success | OperationOutcome::Observed, _) => Some("00000"),
            (OperationOutcome::Abandoned, _) => None,
            (OperationOutcome::Failure | OperationOutcome::Refused, ContainerAction::Stop) => Some("01003"),
            (OperationOutcome::Failure | OperationOutcome::Refused, _) => Some("01002"),
        }
    }
}

/// The outcome of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperationOutcome {
    /// The base answered that the operation succeeded.
    Success,
    /// The base answered that the operation failed, or did not answer in time.
    Failure,
    /// The tunnel did not take the request.
    Refused,
    /// The base did not answer, but a later report of the base shows the effect of the operation.
    Observed,
    /// This replica no longer looks after the base: the end of the operation is not known.
    Abandoned,
}

impl OperationOutcome {
    /// All outcomes, in the order of the variants.
    pub const ALL: [Self; 5] = [Self::Success, Self::Failure, Self::Refused, Self::Observed, Self::Abandoned];

    /// Returns the value of the label `outcome` of the metric of operations.
    pub fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure => "failure",
            Self::Refused => "refused",
            Self::Observed => "observed",
            Self::Abandoned => "abandoned",
        }
    }
}
