//! The liveness of one watch: the time at which the API server last sent anything, the reaction when it sends nothing, and the
//! detection of a stuck watch task.

use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use tokio::time::Instant;
use tower::{BoxError, service_fn};

/// The longest time that the server may take for a page of a list, or to accept a watch again. It is the request time limit of the API
/// server itself.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

/// The interval at which a failed watch checks whether the server has accepted it again. The check is needed because no event reports
/// that.
const RECOVERY_CHECK: Duration = Duration::from_secs(1);

/// The grace period after the watch timeout. When it is over, the watch has ended and the next one has begun, even if the connection
/// was lost. kube itself waits 5 s.
const TIMEOUT_GRACE: Duration = Duration::from_secs(10);

/// The shortest regular time between two requests for the same watch. It is less than the shortest watch (1 s) and the shortest
/// back-off delay (0.9 s). So if another request follows earlier, the watch before it ended at once.
const MIN_WATCH_INTERVAL: Duration = Duration::from_millis(500);

/// The activity of one watch, recorded by its HTTP client and by its task.
pub(super) struct Liveness(Mutex<Activity>);

/// The times of the last activities of a watch.
struct Activity {
    /// The time at which the server last accepted the watch or sent a frame in it.
    last: Instant,
    /// The resourceVersion from which the watch was last requested; 0 if it is not known.
    resumed_from: u64,
    /// The time of the last watch request; `None` before the first one.
    last_request: Option<Instant>,
    /// The time at which the task began to process the current item; `None` if it processes none.
    busy_since: Option<Instant>,
}

/// The error of a watch that the server, or a proxy in front of it, ended as soon as it had begun.
#[derive(Debug, thiserror::Error)]
#[error("the watch ended at once, without an event or an error")]
struct EndedAtOnce;

impl Liveness {
    /// Creates the liveness of a watch that begins now.
    pub(super) fn new() -> Self {
        let last = Instant::now();
        Self(Mutex::new(Activity { last, resumed_from: 0, last_request: None, busy_since: None }))
    }

    /// Returns the time at which the server last accepted the watch, or sent an event or a bookmark in it.
    pub(super) fn last_activity(&self) -> Instant {
        self.0.lock().last
    }

    /// Returns the resourceVersion from which the watch was last requested; 0 if it is not known.
    pub(super) fn resumed_from(&self) -> u64 {
        self.0.lock().resumed_from
    }

    /// Records that the task of the watch begins (`busy` is `true`) or ends the processing of an item.
    pub(super) fn set_busy(&self, busy: bool) {
        self.0.lock().busy_since = busy.then(Instant::now);
    }

    /// Returns the time for which the task of the watch has been processing one item; `None` if it processes none.
    pub(super) fn busy_for(&self) -> Option<Duration> {
        self.0.lock().busy_since.map(|since| since.elapsed())
    }

    /// Wraps `client` so that each accepted watch, and each frame that the server sends in a watch, is recorded here. A watch request
    /// that follows the previous one within [`MIN_WATCH_INTERVAL`] fails with an error and is not sent.
    pub(super) fn observe(self: &Arc<Self>, client: Client) -> Client {
        let (liveness, namespace) = (Arc::clone(self), client.default_namespace().to_owned());
        let service = service_fn(move |request: Request<Body>| {
            let (client, liveness) = (client.clone(), Arc::clone(&liveness));
            async move {
                let query = request.uri().query().unwrap_or_default();
                let is_watch = query.split('&').any(|part| part == "watch=true");
                if is_watch {
                    liveness.request_watch(query)?;
                }
                let response = client.send(request).await?;
                // An error response is no sign that the watched resource is served.
                let observer = (is_watch && response.status().is_success()).then_some(liveness);
                let record = move || {
                    if let Some(liveness) = &observer {
                        liveness.0.lock().last = Instant::now();
                    }
                };
                record();
                Ok::<_, BoxError>(response.map(|body| {
                    body.map_frame(move |frame| {
                        record();
                        frame
                    })
                }))
            }
        });
        Client::new(service, namespace)
    }

    /// Records that a watch is about to be requested with the URL query `query`. If the previous request was less than
    /// [`MIN_WATCH_INTERVAL`] ago, records nothing and fails: the previous watch ended at once.
    fn request_watch(&self, query: &str) -> Result<(), EndedAtOnce> {
        let (mut activity, now) = (self.0.lock(), Instant::now());
        if activity.last_request.is_some_and(|last| now.duration_since(last) < MIN_WATCH_INTERVAL) {
            return Err(EndedAtOnce);
        }
        activity.last_request = Some(now);
        let version = query.split('&').find_map(|part| part.strip_prefix("resourceVersion="));
        if let Some(version) = version.and_then(|version| version.parse().ok()) {
            activity.resumed_from = version;
        }
        Ok(())
    }
}

/// A watch whose stream has yielded nothing for [`patience`](Self::patience).
#[derive(Clone, Copy, Debug)]
pub(super) struct QuietWatch {
    /// `true` while the stream lists all objects.
    pub(super) listing: bool,
    /// The number of failed attempts since the watch last worked.
    pub(super) attempts: u32,
    /// The time at which the server last accepted the watch or sent something in it.
    pub(super) last_activity: Instant,
    /// The time from which on the server is expected to accept the watch: the end of the last list or of the last back-off delay.
    pub(super) requested: Instant,
}

/// The reaction to a watch that has yielded nothing for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QuietAction {
    /// List all objects again, because the server did not respond in time to the list or watch, or has been silent for too long in it.
    Relist,
    /// Reset the back-off, because the server accepted the failed watch again and did not end it at once.
    Recovered,
    /// Wait, because the server still has time to accept the failed watch again.
    Wait,
    /// Compare the current resourceVersion of the server with the newest one that this process has seen, because there was no event for
    /// a long time.
    CheckHistory,
}

impl QuietWatch {
    /// Returns the time without an item after which [`action`](Self::action) is called. `timeout` is the duration of one watch request.
    pub(super) fn patience(self, timeout: Duration) -> Duration {
        match self.attempts {
            _ if self.listing => RESPONSE_TIMEOUT,
            0 => timeout * 2,
            _ => RECOVERY_CHECK,
        }
    }

    /// Decides the reaction at the time `now`. `timeout` is the duration of one watch request.
    ///
    /// A failed watch has recovered as soon as the server has accepted it, even if its objects do not change. It must have been quiet
    /// for a while, because a watch that is accepted and ended each time has to list again.
    pub(super) fn action(self, timeout: Duration, now: Instant) -> QuietAction {
        let quiet = now.saturating_duration_since(self.last_activity);
        match self.attempts {
            _ if self.listing => QuietAction::Relist,
            // A server that answers sends at least one frame in the time that a watch lasts.
            0 if quiet >= (timeout * 2).max(timeout + TIMEOUT_GRACE) => QuietAction::Relist,
            0 => QuietAction::CheckHistory,
            _ if self.last_activity > self.requested => QuietAction::Recovered,
            _ if now.saturating_duration_since(self.requested) > RESPONSE_TIMEOUT => QuietAction::Relist,
            _ => QuietAction::Wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{Response, StatusCode};
    use tokio::time::advance;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_quiet_watch_is_listed_again_only_when_the_server_shows_no_sign_of_life() {
        // The clock of the machine may have begun less than that ago.
        advance(Duration::from_secs(1000)).await;
        let now = Instant::now();
        let ago = |seconds: u64| now - Duration::from_secs(seconds);
        // `listing`, failed attempts, and the seconds since the last activity and since the last request.
        for (listing, attempts, last_activity, requested, expected) in [
            (true, 0, 1, 1000, QuietAction::Relist),
            (true, 3, 500, 1, QuietAction::Relist),
            (false, 0, 0, 1000, QuietAction::CheckHistory),
            (false, 0, 119, 1000, QuietAction::CheckHistory),
            (false, 0, 120, 1000, QuietAction::Relist),
            (false, 1, 2, 3, QuietAction::Recovered),
            (false, 1, 3, 3, QuietAction::Wait),
            (false, 1, 500, 60, QuietAction::Wait),
            (false, 1, 500, 61, QuietAction::Relist),
            (false, 1, 59, 61, QuietAction::Recovered),
        ] {
            let (last_activity, requested) = (ago(last_activity), ago(requested));
            let quiet = QuietWatch { listing, attempts, last_activity, requested };
            assert_eq!(quiet.action(MINUTE, now), expected, "{quiet:?} at {now:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_of_any_length_is_given_up_only_when_a_healthy_one_would_have_shown_activity() {
        let start = Instant::now();
        let quiet = quiet(start, false, 0);
        for (timeout, given_up_after) in [(1, 11), (10, 20), (60, 120), (290, 580)] {
            let timeout = Duration::from_secs(timeout);
            let action = |seconds| quiet.action(timeout, start + Duration::from_secs(seconds));
            assert_eq!(action(given_up_after - 1), QuietAction::CheckHistory);
            assert_eq!(action(given_up_after), QuietAction::Relist);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn patience_is_short_after_a_failure() {
        let now = Instant::now();
        let patience = |listing, attempts| quiet(now, listing, attempts).patience(MINUTE).as_secs();
        assert_eq!((patience(true, 0), patience(true, 1)), (60, 60));
        assert_eq!((patience(false, 0), patience(false, 1)), (120, 1));
    }

    fn quiet(now: Instant, listing: bool, attempts: u32) -> QuietWatch {
        QuietWatch { listing, attempts, last_activity: now, requested: now }
    }

    /// Makes a watch at a server that responds to each path in its own way.
    struct Observed {
        liveness: Arc<Liveness>,
        client: Client,
    }

    fn observed() -> Observed {
        let server = service_fn(async |request: Request<Body>| {
            let status = match request.uri().path() {
                "/watched" => StatusCode::OK,
                "/refused" => StatusCode::FORBIDDEN,
                _ => return Err(std::io::Error::other("connection refused")),
            };
            Ok(Response::builder().status(status).body(Body::from(b"{}".to_vec())).unwrap())
        });
        let liveness = Arc::new(Liveness::new());
        let client = liveness.observe(Client::new(server, "default"));
        Observed { liveness, client }
    }

    impl Observed {
        async fn get(&self, uri: &str) -> Result<Response<Body>, kube::Error> {
            self.client.send(Request::get(uri).body(Body::empty()).unwrap()).await
        }

        fn quiet_seconds(&self) -> u64 {
            self.liveness.last_activity().elapsed().as_secs()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_accepted_watch_and_its_frames_are_activity_and_a_refusal_or_another_request_is_not() {
        let observed = observed();
        for uri in ["/watched", "/refused?watch=true", "/gone?watch=true"] {
            advance(Duration::from_secs(10)).await;
            drop(observed.get(uri).await);
        }
        assert_eq!(observed.quiet_seconds(), 30);
        advance(Duration::from_secs(10)).await;
        let response = observed.get("/watched?&watch=true").await.unwrap();
        assert_eq!(observed.quiet_seconds(), 0, "the watch is accepted");
        advance(Duration::from_secs(10)).await;
        response.into_body().collect_bytes().await.unwrap();
        assert_eq!(observed.quiet_seconds(), 0, "the server sends a frame");
        assert_eq!(observed.liveness.resumed_from(), 0);
        drop(observed.get("/watched?&watch=true&resourceVersion=1000&timeoutSeconds=60").await);
        assert_eq!(observed.liveness.resumed_from(), 1000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_is_requested_as_soon_as_the_last_one_began_is_an_error_and_no_request() {
        let observed = observed();
        observed.get("/watched?&watch=true").await.unwrap();
        let error = observed.get("/watched?&watch=true").await.expect_err("it is too soon");
        assert!(error.to_string().contains("the watch ended at once"), "{error}");
        assert!(staffetta_handler::Failure::transient(&error));
        observed.get("/watched").await.expect("a list may follow at any time");
        advance(Duration::from_secs(1)).await;
        observed.get("/watched?&watch=true").await.unwrap();
    }
}
