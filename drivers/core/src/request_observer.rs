//! Who learns of the requests that drivers make.

use std::time::Duration;

/// Learns of each request that a driver made of its other world: to count them. It must not block.
pub trait RequestObserver: Send + Sync {
    /// A request of `service` by the HTTP `method` ended after `time`. Each attempt is a request of its own.
    fn ended(&self, service: &'static str, method: &'static str, outcome: RequestOutcome, time: Duration);
}

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// It was done.
    Success,
    /// What it names does not exist: 404.
    NotFound,
    /// Somebody or something stands against it at this moment: 409, 412.
    Conflict,
    /// It was refused: any other 4xx.
    Refused,
    /// There are too many: 429, 503.
    Throttled,
    /// The service is in trouble: any other 5xx.
    Failed,
    /// There was no answer, or nobody waited for it.
    Unanswered,
}

impl RequestOutcome {
    /// All of them, in the order of their declaration.
    pub const ALL: [Self; 7] = [
        Self::Success,
        Self::NotFound,
        Self::Conflict,
        Self::Refused,
        Self::Throttled,
        Self::Failed,
        Self::Unanswered,
    ];

    /// What came of a request that was answered with this HTTP status.
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

    /// The name, as a label says it.
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

/// Nobody counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unobserved;

impl RequestObserver for Unobserved {
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
