//! Observers of the requests that drivers send to their external systems.

use std::time::Duration;

/// Receives the outcome of each request that a driver sends to its external system, for metrics. It must not block.
pub trait RequestObserver: Send + Sync {
    /// Records a request that ended. `service` is the API that received it, `method` the HTTP method, and `time` its duration.
    /// Each retry counts as a request.
    fn ended(&self, service: &'static str, method: &'static str, outcome: RequestOutcome, time: Duration);
}

/// The outcome of a request to an external system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// The request succeeded.
    Success,
    /// The resource does not exist: HTTP status 404.
    NotFound,
    /// The resource is in use or was changed meanwhile: 409 or 412.
    Conflict,
    /// The request was rejected: any other HTTP status 4xx.
    Refused,
    /// The service received too many requests: 429 or 503.
    Throttled,
    /// The service failed: any other HTTP status 5xx.
    Failed,
    /// No response was received: a lost connection, a timeout, or a caller that stopped waiting.
    Unanswered,
}

impl RequestOutcome {
    /// All outcomes, in the order of their declaration.
    pub const ALL: [Self; 7] = [
        Self::Success,
        Self::NotFound,
        Self::Conflict,
        Self::Refused,
        Self::Throttled,
        Self::Failed,
        Self::Unanswered,
    ];

    /// Returns the outcome of a response with this HTTP status.
    pub fn of_status(status: u16) -> Self {
        match status {
            404 => Self::NotFound,
            409 | 412 => Self::Conflict,
            429 | 503 => Self::Throttled,
            ..400 => Self::Success,
            400..500 => Self::Refused,
            500.. => Self::Failed,
        }
    }

    /// Returns the value of the metric label that stands for this outcome.
    pub fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::NotFound => "not_found",
            Self::Conflict => "conflict",
            Self::Refused => "refused",
            Self::Throttled => "throttled",
            Self::Failed => "failed",
            Self::Unanswered => "unanswered",
        }
    }
}

/// An observer that ignores all requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoopRequestObserver;

impl RequestObserver for NoopRequestObserver {
    fn ended(&self, _: &'static str, _: &'static str, _: RequestOutcome, _: Duration) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_has_its_outcome() {
        let outcomes = [201, 304, 401, 404, 409, 412, 429, 500, 503].map(RequestOutcome::of_status);
        let names = outcomes.map(RequestOutcome::name);
        let expected = [
            "success",
            "success",
            "refused",
            "not_found",
            "conflict",
            "conflict",
            "throttled",
            "failed",
            "throttled",
        ];
        assert_eq!(names, expected);
    }
}
