//! The injected faults and the requests to which they apply. No I/O: the front consults it for each request.

use parking_lot::{Mutex, MutexGuard};

use super::asked::Question;
use super::fault::Fault;
use super::requests::Requests;

/// The faults that are still to come, first match first.
#[derive(Default)]
pub(super) struct Plan(Mutex<Vec<Planned>>);

struct Planned {
    requests: Requests,
    left: usize,
    fault: Fault,
}

impl Plan {
    fn planned(&self) -> MutexGuard<'_, Vec<Planned>> {
        self.0.lock()
    }

    /// The next `times` requests that match meet this fault.
    pub(super) fn add(&self, requests: Requests, times: usize, fault: Fault) {
        if times > 0 {
            self.planned().push(Planned { requests, left: times, fault });
        }
    }

    /// Forgets the faults that have not happened yet.
    pub(super) fn clear(&self) {
        self.planned().clear();
    }

    /// The number of faults that have not occurred yet.
    pub(super) fn pending(&self) -> usize {
        self.planned().iter().fold(0, |sum, planned| sum.saturating_add(planned.left))
    }

    /// Returns `true` if the request's body decides which fault applies.
    pub(super) fn reads_body(&self, question: &Question) -> bool {
        let reads = |planned: &Planned| planned.requests.read_bodies() && planned.requests.include(question);
        self.planned().iter().any(reads)
    }

    /// Takes the fault that is planned for this question with this body.
    pub(super) fn take_fault(&self, question: &Question, body: &[u8]) -> Option<Fault> {
        let mut plan = self.planned();
        let met = |planned: &Planned| planned.requests.include(question) && planned.requests.are_said(body);
        let place = plan.iter().position(met)?;
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
    use crate::front::path::Target;

    #[test]
    fn a_fault_hits_the_requests_it_names_and_is_used_up() {
        let plan = Plan::default();
        let requests = Requests::any().verb("patch").resource("pods").subresource("");
        plan.add(requests, 2, Fault::status(503));
        let asked = |verb, subresource: &str| {
            let target = Target {
                group: String::new(),
                version: "v1".into(),
                namespace: Some("a".into()),
                plural: "pods".into(),
                name: Some("b".into()),
                subresource: Some(subresource.to_owned()).filter(|name| !name.is_empty()),
            };
            Question { verb, target, dry_run: false }
        };
        assert_eq!(plan.take_fault(&asked("get", ""), b""), None);
        assert_eq!(plan.take_fault(&asked("patch", "status"), b""), None);
        assert_eq!(plan.take_fault(&asked("patch", ""), b""), Some(Fault::status(503)));
        assert_eq!(plan.pending(), 1);
        assert_eq!(plan.take_fault(&asked("patch", ""), b""), Some(Fault::status(503)));
        assert_eq!(plan.take_fault(&asked("patch", ""), b""), None);
    }

    #[test]
    fn a_body_is_read_only_where_a_fault_asks_for_it() {
        let plan = Plan::default();
        let target = |plural: &str| Target {
            group: String::new(),
            version: "v1".into(),
            namespace: None,
            plural: plural.into(),
            name: None,
            subresource: None,
        };
        let asked = |plural: &str| Question { verb: "create", target: target(plural), dry_run: false };
        let requests = Requests::any().resource("pods").saying("one").saying("two");
        plan.add(requests, 1, Fault::Cut);
        assert!(plan.reads_body(&asked("pods")) && !plan.reads_body(&asked("nodes")));
        assert_eq!(plan.take_fault(&asked("pods"), b"two"), None);
        assert_eq!(plan.take_fault(&asked("nodes"), b"two one"), None);
        assert_eq!(plan.take_fault(&asked("pods"), b"two one"), Some(Fault::Cut));
        assert!(!plan.reads_body(&asked("pods")));
    }
}
