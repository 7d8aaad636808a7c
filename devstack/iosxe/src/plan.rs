//! The injected faults that have not occurred yet.

use crate::fault::{Fault, Requests};

/// The planned faults, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Plan(Vec<Planned>);

#[derive(Debug)]
struct Planned {
    requests: Requests,
    skip: usize,
    times: usize,
    fault: Fault,
}

impl Plan {
    pub(crate) fn add(&mut self, requests: Requests, times: usize, fault: Fault) {
        if times > 0 {
            self.0.push(Planned { skip: requests.skip, requests, times, fault });
        }
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// The number of planned faults that have not occurred yet.
    pub(crate) fn pending(&self) -> usize {
        self.0.iter().map(|planned| planned.times).sum()
    }

    /// The fault that this request meets: of several the oldest.
    pub(crate) fn take(&mut self, method: &str, path: &str, operation: Option<&str>) -> Option<Fault> {
        let mut taken = None;
        for planned in &mut self.0 {
            if taken.is_some() || !planned.requests.include(method, path, operation) {
                continue;
            }
            if planned.skip > 0 {
                planned.skip -= 1;
            } else {
                planned.times -= 1;
                taken = Some(planned.fault.clone());
            }
        }
        self.0.retain(|planned| planned.times > 0);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_hits_the_requests_it_is_meant_for_as_often_as_planned() {
        let mut plan = Plan::default();
        plan.add(Requests::any().method("POST").operation("install").after(1), 2, Fault::Hang);
        let mut hits = |method, operation| plan.take(method, "/restconf/operations", operation).is_some();
        assert!(!hits("GET", None) && !hits("POST", Some("start")));
        assert!(!hits("POST", Some("install")), "the first is let through");
        assert!(hits("POST", Some("install")) && hits("POST", Some("install")));
        assert!(!hits("POST", Some("install")));
        assert_eq!(plan.pending(), 0);
    }

    #[test]
    fn of_two_faults_the_older_comes_first() {
        let mut plan = Plan::default();
        plan.add(Requests::any(), 1, Fault::Cut);
        plan.add(Requests::any().path("arp"), 1, Fault::Hang);
        assert_eq!(plan.take("GET", "/arp-data", None), Some(Fault::Cut));
        assert_eq!(plan.take("GET", "/other", None), None);
        assert_eq!(plan.take("GET", "/arp-data", None), Some(Fault::Hang));
    }
}
