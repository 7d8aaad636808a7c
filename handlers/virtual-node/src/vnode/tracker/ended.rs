//! Operations that ended.

use std::time::Duration;

use crate::vnode::Operation;

/// An operation that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedOperation {
    /// The operation.
    pub operation: Operation,
    /// The outcome.
    pub outcome: OperationOutcome,
    /// The time from asking for it to its end.
    pub took: Duration,
}

/// The outcome of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperationOutcome {
    /// The base answered that it succeeded.
    Success,
    /// The base answered that it failed, or did not answer in time.
    Failure,
    /// The tunnel did not take the request.
    Refused,
    /// Nothing was answered, and a later report of the base shows the effect.
    Observed,
    /// This replica no longer looks after the base, or the pod is gone.
    Abandoned,
}

impl OperationOutcome {
    /// All outcomes.
    pub const ALL: [Self; 5] = [Self::Success, Self::Failure, Self::Refused, Self::Observed, Self::Abandoned];

    /// Returns the value of the label `outcome`.
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
