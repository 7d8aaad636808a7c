//! Failed operations on containers.

use std::sync::Arc;
use std::time::Duration;

use staffetta_driver::RequestLog;
use staffetta_handler::BackoffPolicy;
use tokio::time::Instant;

/// The delays after failures of an operation, and between the starts of a container that disappears, up to the maximum that kubelets have.
pub(super) const BACKOFF: BackoffPolicy = BackoffPolicy::unlimited(Duration::from_secs(10), MAX_DELAY);

/// The maximum delay after a failure of an operation.
pub(super) const MAX_DELAY: Duration = Duration::from_secs(300);

/// The last failed operation on a container, and the time of the next attempt.
#[derive(Debug)]
pub(super) struct OperationFailure {
    /// The number of failures since the container was last started.
    pub(super) count: u32,
    /// The time of the next attempt at the operation.
    pub(super) retry_at: Instant,
    /// The reason of the failure, as one word in CamelCase.
    pub(super) reason: String,
    /// The message about the failure, for people.
    pub(super) message: String,
    /// `true` if the base did not say that the operation failed: it was lost on the way.
    pub(super) lost: bool,
    /// The log of the requests that the driver sent for the operation.
    pub(super) requests: Arc<RequestLog>,
}

impl OperationFailure {
    /// Creates the failure that follows `failures` others. A `reason` that is not one word is replaced.
    pub(super) fn new(
        failures: u32,
        reason: &str,
        message: &str,
        requests: Arc<RequestLog>,
        now: Instant,
    ) -> Self {
        let reason = if is_reason(reason) { reason } else { "OperationFailed" };
        Self {
            count: failures.saturating_add(1),
            retry_at: now + BACKOFF.requeue_delay(failures, None),
            reason: reason.to_owned(),
            message: message.to_owned(),
            lost: false,
            requests,
        }
    }
}

/// Returns `true` if the text may be the reason of a waiting container: at most 64 letters, digits and `_`, with a letter first.
fn is_reason(text: &str) -> bool {
    let starts = text.starts_with(|first: char| first.is_ascii_alphabetic());
    starts && text.len() <= 64 && text.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}
