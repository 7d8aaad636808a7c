//! Faults between the controller and the services.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{Method, StatusCode};

/// Something that goes wrong with a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is answered with this, and nothing is done.
    Answer {
        /// The HTTP status.
        status: StatusCode,
        /// Seconds for the `Retry-After` header.
        retry_after: Option<u64>,
        /// The body; what is no JSON goes out as HTML, as the services' middleware answers.
        body: String,
    },
    /// It is done, after this time.
    Delay(Duration),
    /// It is done after this time, whether or not anybody still waits, and is never answered.
    Late(Duration),
    /// It is not done, and never answered.
    Hang,
    /// It is not done, and the connection is cut.
    Cut,
    /// It is done, and the connection is cut before the answer.
    CutAfter,
}

impl Fault {
    /// It is refused as a service in trouble does, with a page for people.
    #[must_use]
    pub fn unavailable(retry_after: Option<u64>) -> Self {
        let body = "<html><body><h1>503 Service Unavailable</h1></body></html>".to_owned();
        Self::Answer { status: StatusCode::SERVICE_UNAVAILABLE, retry_after, body }
    }

    /// Neutron refuses it with this type of error.
    #[must_use]
    pub fn neutron(status: StatusCode, kind: &str, message: &str) -> Self {
        let error = serde_json::json!({ "type": kind, "message": message, "detail": "" });
        let body = serde_json::json!({ "NeutronError": error }).to_string();
        Self::Answer { status, retry_after: None, body }
    }

    /// Octavia refuses it in these words.
    #[must_use]
    pub fn octavia(status: StatusCode, message: &str) -> Self {
        let body = serde_json::json!({ "faultcode": "Client", "faultstring": message, "debuginfo": null });
        Self::Answer { status, retry_after: None, body: body.to_string() }
    }
}

/// Selects calls with this method whose path and query contain all of these texts.
#[derive(Clone, Debug)]
pub struct Match {
    method: Option<Method>,
    texts: Vec<String>,
}

impl Match {
    /// Every call.
    #[must_use]
    pub fn any() -> Self {
        Self { method: None, texts: Vec::new() }
    }

    /// Calls with this method.
    #[must_use]
    pub fn method(mut self, method: Method) -> Self {
        self.method = Some(method);
        self
    }

    /// Calls whose path and query contain `text`: `/network/v2.0/ports`.
    #[must_use]
    pub fn path(mut self, text: &str) -> Self {
        self.texts.push(text.to_owned());
        self
    }

    /// Returns `true` if the call is selected.
    #[must_use]
    pub fn takes(&self, method: &Method, path_and_query: &str) -> bool {
        self.method.as_ref().is_none_or(|wanted| wanted == method)
            && self.texts.iter().all(|text| path_and_query.contains(text.as_str()))
    }
}

/// Faults that are still to happen.
#[derive(Default)]
pub(super) struct Plan(Mutex<Vec<(Match, usize, Fault)>>);

impl Plan {
    pub(super) fn add(&self, calls: Match, times: usize, fault: Fault) {
        self.planned().push((calls, times, fault));
    }

    pub(super) fn clear(&self) {
        self.planned().clear();
    }

    pub(super) fn pending(&self) -> usize {
        self.planned().iter().map(|(_, times, _)| times).sum()
    }

    /// The fault that this call meets: of several the oldest.
    pub(super) fn take(&self, method: &Method, path_and_query: &str) -> Option<Fault> {
        let mut planned = self.planned();
        let place = planned.iter().position(|(calls, _, _)| calls.takes(method, path_and_query))?;
        planned[place].1 -= 1;
        let fault = planned[place].2.clone();
        planned.retain(|(_, times, _)| *times > 0);
        Some(fault)
    }

    fn planned(&self) -> MutexGuard<'_, Vec<(Match, usize, Fault)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_happens_as_often_as_it_was_planned_and_to_those_that_are_meant() {
        let plan = Plan::default();
        plan.add(Match::any().method(Method::POST).path("/ports"), 2, Fault::Cut);
        assert_eq!(plan.take(&Method::GET, "/network/v2.0/ports"), None);
        assert_eq!(plan.take(&Method::POST, "/network/v2.0/networks"), None);
        assert_eq!(plan.take(&Method::POST, "/network/v2.0/ports"), Some(Fault::Cut));
        assert_eq!(plan.pending(), 1);
        assert_eq!(plan.take(&Method::POST, "/network/v2.0/ports"), Some(Fault::Cut));
        assert_eq!(plan.take(&Method::POST, "/network/v2.0/ports"), None);
    }
}
