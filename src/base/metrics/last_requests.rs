//! The last request to each external service, by which `/readyz?verbose` shows whether the service still answers.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use staffetta_driver::RequestOutcome;
use tokio::time::Instant;

/// The last request to each service, by its name, such as `identity`.
#[derive(Default)]
pub(super) struct LastRequests(Mutex<BTreeMap<&'static str, LastRequest>>);

/// The last request to one service.
struct LastRequest {
    outcome: RequestOutcome,
    ended: Instant,
    /// The time of the last response by which the service works; `None` before the first one.
    worked: Option<Instant>,
}

impl LastRequests {
    /// Records a request to `service` that has ended now.
    pub(super) fn record(&self, service: &'static str, outcome: RequestOutcome) {
        let ended = Instant::now();
        let mut requests = self.0.lock();
        let before = requests.get(service).and_then(|request| request.worked);
        let worked = if is_answer(outcome) { Some(ended) } else { before };
        requests.insert(service, LastRequest { outcome, ended, worked });
    }

    /// Describes the last requests to these services. Services without a request are left out.
    pub(super) fn describe(&self, services: &[&str]) -> Vec<String> {
        let requests = self.0.lock();
        let described = services.iter().filter_map(|service| {
            let LastRequest { outcome, ended, worked } = requests.get(service)?;
            let (ago, outcome) = (ended.elapsed().as_secs(), outcome.name());
            let last = format!("{service}: last request {ago} s ago, {outcome}");
            Some(match worked {
                Some(worked) if worked == ended => last,
                Some(worked) => format!("{last}; it last worked {} s ago", worked.elapsed().as_secs()),
                None => format!("{last}; it has not worked yet"),
            })
        });
        described.collect()
    }
}

/// Returns `true` if a request with this outcome shows that the service works, although it may not have done what was requested.
fn is_answer(outcome: RequestOutcome) -> bool {
    matches!(outcome, RequestOutcome::Success | RequestOutcome::NotFound | RequestOutcome::Conflict)
}
