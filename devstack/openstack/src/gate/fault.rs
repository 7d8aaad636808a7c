//! Faults between the controller and the services.

use std::time::Duration;

use http::{Method, StatusCode};
use parking_lot::{Mutex, MutexGuard};

/// A fault of a request: it changes the execution of the request, its response or its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The request gets this response and is not executed.
    Answer {
        /// The HTTP status.
        status: StatusCode,
        /// The value of the `Retry-After` header, in seconds.
        retry_after: Option<u64>,
        /// The body. A text that is not JSON is sent as HTML, as by the middleware of the services.
        body: String,
    },
    /// The request is executed after this time.
    Delay(Duration),
    /// The request is executed after this time, even if the client no longer waits, but gets no response.
    Late(Duration),
    /// The request is not executed, and gets no response.
    Hang,
    /// The request is not executed, and its connection is cut.
    Cut,
    /// The request is executed, and its connection is cut before the response.
    CutAfter,
}

impl Fault {
    /// Returns a rejection with 503, as by an overloaded service, with an HTML page as its body.
    #[must_use]
    pub fn unavailable(retry_after: Option<u64>) -> Self {
        let body = "<html><body><h1>503 Service Unavailable</h1></body></html>".to_owned();
        Self::Answer { status: StatusCode::SERVICE_UNAVAILABLE, retry_after, body }
    }

    /// Returns a rejection by Neutron with this type of error.
    #[must_use]
    pub fn neutron(status: StatusCode, kind: &str, message: &str) -> Self {
        let error = serde_json::json!({ "type": kind, "message": message, "detail": "" });
        let body = serde_json::json!({ "NeutronError": error }).to_string();
        Self::Answer { status, retry_after: None, body }
    }

    /// Returns a rejection by Octavia with this message.
    #[must_use]
    pub fn octavia(status: StatusCode, message: &str) -> Self {
        let body = serde_json::json!({ "faultcode": "Client", "faultstring": message, "debuginfo": null });
        Self::Answer { status, retry_after: None, body: body.to_string() }
    }
}

/// A selector of requests: with this method, and with all of these texts in the path and query.
#[derive(Clone, Debug)]
pub struct Match {
    method: Option<Method>,
    texts: Vec<String>,
}

impl Match {
    /// Returns a selector of all requests.
    #[must_use]
    pub fn any() -> Self {
        Self { method: None, texts: Vec::new() }
    }

    /// Selects only requests with this method.
    #[must_use]
    pub fn method(mut self, method: Method) -> Self {
        self.method = Some(method);
        self
    }

    /// Selects only requests whose path and query contain `text`: `/network/v2.0/ports`.
    #[must_use]
    pub fn path(mut self, text: &str) -> Self {
        self.texts.push(text.to_owned());
        self
    }

    /// Returns `true` if the request is selected.
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
        self.0.lock()
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
