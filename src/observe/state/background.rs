//! Failing work that handlers do in the background for an object, not in response to an event of that object.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use staffetta_driver::LoggedRequest;

/// A registry of the background work of handlers, such as changes of the network interfaces of nodes. For each handler, it holds a function
/// that returns the last requests of work that fails. Clones share the registry.
#[derive(Clone, Default)]
pub(crate) struct BackgroundWork(Arc<Mutex<BTreeMap<&'static str, WorkOfHandler>>>);

/// The background work of one handler.
struct WorkOfHandler {
    /// The kind of the objects that the work is for.
    kind: &'static str,
    failed_requests: FailedRequests,
}

/// The type of a function that returns the last requests of the work for the object of this name; none if the work does not fail.
type FailedRequests = Box<dyn Fn(&str) -> Vec<LoggedRequest> + Send + Sync>;

impl BackgroundWork {
    /// Registers `failed_requests` for the background work of `handler` for objects of `kind`, in place of the function of an earlier term.
    /// The function returns the last requests for the object with the given name; none if the work for it does not fail.
    pub(crate) fn report(
        &self,
        handler: &'static str,
        kind: &'static str,
        failed_requests: impl Fn(&str) -> Vec<LoggedRequest> + Send + Sync + 'static,
    ) {
        let work = WorkOfHandler { kind, failed_requests: Box::new(failed_requests) };
        self.0.lock().insert(handler, work);
    }

    /// Returns the handlers whose background work for an object fails, each with the last requests. The kind is compared
    /// case-insensitively.
    pub(super) fn failing(&self, kind: &str, name: &str) -> Vec<(&'static str, Vec<LoggedRequest>)> {
        let all = self.0.lock();
        let of_kind = all.iter().filter(|(_, work)| work.kind.eq_ignore_ascii_case(kind));
        let requests = of_kind.map(|(handler, work)| (*handler, (work.failed_requests)(name)));
        requests.filter(|(_, requests)| !requests.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;

    fn requests(path: &str) -> Vec<LoggedRequest> {
        let (method, path, status) = ("POST".to_owned(), path.to_owned(), Some(500));
        let (sent, duration) = (Instant::now(), Duration::ZERO);
        vec![LoggedRequest { method, path, status, answered: true, request_id: None, sent, duration }]
    }

    #[test]
    fn the_work_of_each_handler_is_found_by_the_object_while_it_fails() {
        let work = BackgroundWork::default();
        work.report("prefix_ip", "Node", |_| panic!("it belongs to an earlier term"));
        work.report("prefix_ip", "Node", |name| if name == "n1" { requests("/a") } else { Vec::new() });
        work.report("other", "Node", |_| requests("/b"));
        work.report("vif", "Pod", |_| requests("/c"));
        let failing = |kind: &str, name: &str| -> Vec<_> {
            let failing = work.failing(kind, name).into_iter();
            failing.map(|(handler, requests)| (handler, requests[0].path.clone())).collect()
        };
        assert_eq!(failing("node", "n1"), [("other", "/b".to_owned()), ("prefix_ip", "/a".to_owned())]);
        assert_eq!(failing("Node", "n2"), [("other", "/b".to_owned())]);
        assert!(failing("Service", "n1").is_empty());
    }
}
