//! The requests that drivers send while a handler handles one object. `staffetta explain` shows them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::task::futures::TaskLocalFuture;
use tokio::time::Instant;

/// The maximum number of requests in a [`RequestLog`]. A further one replaces the oldest.
const MAX_REQUESTS: usize = 10;

/// The maximum length of a logged path and of a logged request id, in characters. The rest is cut off.
const MAX_TEXT: usize = 200;

tokio::task_local! {
    /// The log of the attempt (to handle one object) whose future is being polled.
    static CURRENT: Arc<RequestLog>;
}

/// A request to an external system that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedRequest {
    /// The HTTP method, such as `POST`, or `PUBLISH` for an MQTT message.
    pub method: String,
    /// The path of the URL, without its query; or the name of the API action (in EC2), or the topic of the MQTT message.
    pub path: String,
    /// The status of the response; `None` if there was none, or if responses have no status.
    pub status: Option<u16>,
    /// `true` if there was a response.
    pub answered: bool,
    /// The id by which the external system logs the request; `None` if it is not known.
    pub request_id: Option<String>,
    /// The time at which the request was sent.
    pub sent: Instant,
    /// The time until the response was read, or until the request was cancelled.
    pub duration: Duration,
}

/// The last requests that drivers sent during the attempts of the handlers to handle one object.
///
/// The chain of handlers sets up a log for each attempt, and a driver adds requests with a [`RequestRecord`]. A task that a driver spawns
/// for an attempt adds its requests if it runs within [`collect`](Self::collect) of the attempt's [`current`](Self::current) log.
#[derive(Debug, Default)]
pub struct RequestLog(Mutex<Content>);

/// The content of a [`RequestLog`]: the last requests, the oldest first, and `true` if one of all requests has changed something.
#[derive(Debug, Default)]
struct Content {
    requests: VecDeque<LoggedRequest>,
    changed: bool,
}

impl RequestLog {
    /// Returns the log of the handler's attempt (to handle one object) within which this function is called. Outside of an attempt, returns
    /// a new log that nobody reads.
    pub fn current() -> Arc<Self> {
        CURRENT.try_with(Arc::clone).unwrap_or_default()
    }

    /// Runs `work`, and collects its requests in this log.
    pub fn collect<F: Future>(self: &Arc<Self>, work: F) -> TaskLocalFuture<Arc<Self>, F> {
        CURRENT.scope(Arc::clone(self), work)
    }

    /// Returns the last ten requests, in the order in which they ended.
    pub fn requests(&self) -> Vec<LoggedRequest> {
        self.content().requests.iter().cloned().collect()
    }

    /// Returns `true` if the log has no requests: none has ended so far.
    pub fn is_empty(&self) -> bool {
        self.content().requests.is_empty()
    }

    /// Returns `true` if a request that changes the external system has succeeded, with a status below 400.
    pub fn changed_something(&self) -> bool {
        self.content().changed
    }

    /// Adds the requests of `other` that are not in this log yet: those of work that several attempts share, or that continues after an
    /// attempt.
    pub fn extend(&self, other: &Self) {
        let (requests, changed) = (other.requests(), other.changed_something());
        self.content().changed |= changed;
        for request in requests {
            if !self.content().requests.contains(&request) {
                self.add(request);
            }
        }
    }

    /// Adds a request, in place of the oldest one if the log is full.
    fn add(&self, request: LoggedRequest) {
        let requests = &mut self.content().requests;
        if requests.len() == MAX_REQUESTS {
            requests.pop_front();
        }
        requests.push_back(request);
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.0.lock()
    }
}

/// A request that is being sent. When it is dropped, it is added to the log of the attempt in which it was created; one without a status
/// counts as not answered, unless [`set_answered`](Self::set_answered) was called. Outside of an attempt, nobody reads the record.
#[derive(Debug)]
pub struct RequestRecord {
    log: Arc<RequestLog>,
    request: LoggedRequest,
    /// `true` if the request changes something in the external system when it succeeds.
    changes: bool,
}

impl RequestRecord {
    /// Starts the record of a request that is sent now. `changes` is `true` if it changes something in the external system. `path` must
    /// contain no query, which may be secret.
    pub fn start(method: &str, path: &str, changes: bool) -> Self {
        let (method, path) = (method.to_owned(), shortened(path));
        let (sent, duration) = (Instant::now(), Duration::ZERO);
        let (status, answered, request_id) = (None, false, None);
        let request = LoggedRequest { method, path, status, answered, request_id, sent, duration };
        Self { log: RequestLog::current(), request, changes }
    }

    /// Sets the id by which the external system logs the request.
    pub fn set_request_id(&mut self, id: &str) {
        self.request.request_id = Some(shortened(id));
    }

    /// Sets the status of the response.
    pub fn set_status(&mut self, status: u16) {
        self.request.status = Some(status);
        self.set_answered();
    }

    /// Records that there was a response. Only for responses without a status.
    pub fn set_answered(&mut self) {
        self.request.answered = true;
    }
}

impl Drop for RequestRecord {
    fn drop(&mut self) {
        self.request.duration = self.request.sent.elapsed();
        let succeeded = self.request.status.is_some_and(|status| status < 400);
        self.log.content().changed |= self.changes && succeeded;
        self.log.add(self.request.clone());
    }
}

/// Returns the first [`MAX_TEXT`] characters of `text`.
fn shortened(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends a request to `path` that is answered after a second.
    async fn send(path: &str, status: u16) {
        let mut record = RequestRecord::start("POST", path, true);
        record.set_request_id("req-7");
        tokio::time::sleep(Duration::from_secs(1)).await;
        record.set_status(status);
    }

    fn seen(log: &RequestLog) -> Vec<(String, Option<u16>, u64)> {
        let requests = log.requests().into_iter();
        requests.map(|request| (request.path, request.status, request.duration.as_secs())).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn the_requests_of_an_attempt_are_in_its_log_also_those_that_nobody_answered() {
        let log = Arc::<RequestLog>::default();
        let started = Instant::now();
        log.collect(send("/ports", 409)).await;
        assert!(!log.changed_something(), "it was refused");
        let hung = tokio::time::timeout(Duration::from_millis(500), log.collect(send("/slow", 200)));
        hung.await.expect_err("it takes a second");
        let both = [("/ports".to_owned(), Some(409), 1), ("/slow".to_owned(), None, 0)];
        assert_eq!(seen(&log), both);
        let first = &log.requests()[0];
        assert_eq!(
            (&*first.method, first.request_id.as_deref(), first.sent),
            ("POST", Some("req-7"), started)
        );
        log.collect(send("/ports", 201)).await;
        assert!(log.changed_something());
    }

    #[tokio::test(start_paused = true)]
    async fn a_log_is_bounded() {
        let log = Arc::<RequestLog>::default();
        let requests = async {
            for number in 0..25 {
                drop(RequestRecord::start("GET", &format!("/{number}{}", "x".repeat(300)), false));
            }
        };
        log.collect(requests).await;
        let paths: Vec<_> = log.requests().into_iter().map(|request| request.path).collect();
        assert_eq!((paths.len(), paths[0].len()), (MAX_REQUESTS, MAX_TEXT));
        assert!(paths[0].starts_with("/15") && paths[9].starts_with("/24"));
    }

    #[tokio::test(start_paused = true)]
    async fn outside_of_an_attempt_nothing_is_recorded_and_a_task_takes_part_with_the_log() {
        send("/nobody", 200).await;
        let log = Arc::<RequestLog>::default();
        let attempt = async {
            tokio::spawn(send("/apart", 200)).await.unwrap();
            let log = RequestLog::current();
            tokio::spawn(async move { log.collect(send("/within", 200)).await }).await.unwrap();
        };
        log.collect(attempt).await;
        assert_eq!(seen(&log), [("/within".to_owned(), Some(200), 1)]);
        let other = RequestLog::current();
        other.extend(&log);
        assert!(other.changed_something() && !Arc::ptr_eq(&other, &log));
        assert_eq!(seen(&other), seen(&log));
        other.extend(&log);
        assert_eq!(seen(&other), seen(&log), "no request is added twice");
    }
}
