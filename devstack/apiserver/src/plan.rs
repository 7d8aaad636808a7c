//! Which requests go wrong on purpose, and how. No I/O: the server asks with each request.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::status::Status;

/// Which requests a fault meets. What is not named matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    verb: Option<String>,
    resource: Option<String>,
    subresource: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
}

impl Requests {
    /// All requests for resources.
    #[must_use]
    pub fn any() -> Self {
        Self::default()
    }

    /// Only those of this verb: get, list, watch, create, update, patch, delete or deletecollection.
    #[must_use]
    pub fn verb(mut self, verb: impl Into<String>) -> Self {
        self.verb = Some(verb.into());
        self
    }

    /// Only those for this resource, by its plural name.
    #[must_use]
    pub fn resource(mut self, resource: impl Into<String>) -> Self {
        self.resource = Some(resource.into());
        self
    }

    /// Only those for this subresource; the empty name is the object itself.
    #[must_use]
    pub fn subresource(mut self, subresource: impl Into<String>) -> Self {
        self.subresource = Some(subresource.into());
        self
    }

    /// Only those in this namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Only those for the object of this name.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    fn include(&self, request: &Asked<'_>) -> bool {
        let same =
            |wanted: &Option<String>, given: &str| wanted.as_deref().is_none_or(|wanted| wanted == given);
        same(&self.verb, request.verb)
            && same(&self.resource, request.resource)
            && same(&self.subresource, request.subresource)
            && same(&self.namespace, request.namespace)
            && same(&self.name, request.name)
    }
}

/// A request as the plan of faults sees it.
pub(crate) struct Asked<'a> {
    pub(crate) verb: &'a str,
    pub(crate) resource: &'a str,
    pub(crate) subresource: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

/// What happens to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is refused with this HTTP status, and nothing is done.
    Refuse {
        /// The HTTP status.
        code: u16,
        /// Seconds for the `Retry-After` header.
        retry_after: Option<u64>,
    },
    /// It is done, after this time.
    Delay(Duration),
    /// It is not done, and never answered.
    Hang,
    /// It is not done, and the connection is cut.
    Cut,
    /// It is done, and the connection is cut before the answer.
    CutAfter,
}

impl Fault {
    /// A refusal with this HTTP status.
    #[must_use]
    pub fn status(code: u16) -> Self {
        Self::Refuse { code, retry_after: None }
    }

    /// The Status of a refusal.
    pub(crate) fn refusal(code: u16, retry_after: Option<u64>) -> Status {
        let status = Status::of_code(code, "this request was chosen to fail");
        match retry_after {
            Some(seconds) => status.detail("retryAfterSeconds", seconds.into()),
            None => status,
        }
    }
}

/// The faults that are still to come, first match first.
#[derive(Default)]
pub(crate) struct Plan(Mutex<Vec<Planned>>);

struct Planned {
    requests: Requests,
    left: usize,
    fault: Fault,
}

impl Plan {
    fn planned(&self) -> MutexGuard<'_, Vec<Planned>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next `times` requests that match meet this fault.
    pub(crate) fn add(&self, requests: Requests, times: usize, fault: Fault) {
        if times > 0 {
            self.planned().push(Planned { requests, left: times, fault });
        }
    }

    /// Forgets the faults that have not happened yet.
    pub(crate) fn clear(&self) {
        self.planned().clear();
    }

    /// How many faults have not happened yet.
    pub(crate) fn pending(&self) -> usize {
        self.planned().iter().map(|planned| planned.left).sum()
    }

    /// The fault that meets this request, used up by it.
    pub(crate) fn meet(&self, request: &Asked<'_>) -> Option<Fault> {
        let mut plan = self.planned();
        let place = plan.iter().position(|planned| planned.requests.include(request))?;
        plan[place].left -= 1;
        let fault = plan[place].fault.clone();
        if plan[place].left == 0 {
            plan.remove(place);
        }
        Some(fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_meets_the_requests_it_names_and_is_used_up() {
        let plan = Plan::default();
        let requests = Requests::any().verb("patch").resource("pods").subresource("");
        plan.add(requests, 2, Fault::status(503));
        let asked =
            |verb, subresource| Asked { verb, resource: "pods", subresource, namespace: "a", name: "b" };
        assert_eq!(plan.meet(&asked("get", "")), None);
        assert_eq!(plan.meet(&asked("patch", "status")), None);
        assert_eq!(plan.meet(&asked("patch", "")), Some(Fault::status(503)));
        assert_eq!(plan.pending(), 1);
        assert_eq!(plan.meet(&asked("patch", "")), Some(Fault::status(503)));
        assert_eq!(plan.meet(&asked("patch", "")), None);
    }
}
