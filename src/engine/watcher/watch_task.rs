//! The task of one watch: consumes the stream of kube's watcher, and lists again in the cases in which that stream cannot recover by
//! itself.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::runtime::watcher::{self, Event};
use staffetta_handler::{
    Action, AnyEvent, Backoff, BackoffPolicy, Context, Failure, HandlerError, Message, WatchItem, bounded,
    causes, truncated,
};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_stream::StreamExt;
use tracing::{debug, info, warn};

use super::EventSink;
use super::liveness::{QuietAction, QuietWatch};
use super::status::WatchState;

/// The delays after an error of a list or a watch. They start again at the shortest one when the watch works.
const BACKOFF: BackoffPolicy = BackoffPolicy::unlimited(Duration::from_secs(1), Duration::from_secs(30));

/// The maximum delay between attempts during an outage. It is short, so that objects are handled soon after the outage; one request per
/// watch every five seconds is no load for an API server.
const OUTAGE_BACKOFF: BackoffPolicy =
    BackoffPolicy::unlimited(Duration::from_secs(5), Duration::from_secs(5));

/// The number of failures since the last complete list from which on [`OUTAGE_BACKOFF`] applies. A kind that can be listed but not watched
/// does not reach this number, because it is listed again after two failures. A list costs more than one request, so the longer delays of
/// [`BACKOFF`] apply to it.
const OUTAGE_FAILURES: u32 = 3;

/// The duration of a watch if [`watcher::Config::timeout`] is not set: the default of kube.
const WATCH_TIMEOUT: Duration = Duration::from_secs(290);

/// The time limit for the server to report its current resourceVersion.
const VERSION_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest time for which the first watch waits until the events of the list are handled.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// The task that lists and watches the objects of one kind.
pub(super) struct WatchTask<S> {
    state: Arc<WatchState>,
    client: Client,
    config: watcher::Config,
    /// The duration of one watch request, after which the server ends it.
    timeout: Duration,
    sink: Arc<S>,
    /// The delays after errors. A list does not reset them, because a kind that can be listed but not watched would be listed again and
    /// again without a pause.
    backoff: Backoff,
    /// The number of failures since the last complete list, or since the watch last worked.
    failures: u32,
    /// The time from which on the server is expected to accept the watch: the end of the last list or of the last back-off delay.
    requested: Instant,
    /// The time of the last list that [`relist_requested`] caused; `None` if there was none.
    relisted: Option<Instant>,
}

/// The minimum time between two lists that are requested by other parts of the program. One list serves all requests before it.
pub(super) const RELIST_PAUSE: Duration = Duration::from_secs(10);

/// Waits until a list of all objects is requested, and until [`RELIST_PAUSE`] after `last`, the time of the last such list; `None` if there
/// was none.
pub(super) async fn relist_requested(requested: &Notify, last: Option<Instant>) {
    if let Some(last) = last {
        sleep_until(last + RELIST_PAUSE).await;
    }
    requested.notified().await;
}

/// The error of a list or watch to which the server did not respond in time, or in which it has been silent for too long.
#[derive(Debug, thiserror::Error)]
#[error("the API server does not answer a request")]
struct Unanswered;

impl<S: EventSink> WatchTask<S> {
    /// Creates a task that watches through `client` and delivers to `sink`.
    pub(super) fn new(
        state: &Arc<WatchState>,
        client: Client,
        config: watcher::Config,
        sink: Arc<S>,
    ) -> Self {
        Self {
            state: Arc::clone(state),
            client: state.liveness.observe(client),
            timeout: config.timeout.map_or(WATCH_TIMEOUT, |seconds| Duration::from_secs(seconds.into())),
            config,
            sink,
            backoff: BACKOFF.start(),
            failures: 0,
            requested: Instant::now(),
            relisted: None,
        }
    }

    /// Lists and watches the objects until the task is aborted.
    pub(super) async fn run(mut self) {
        while self.follow().await {
            info!(kind = %self.state.kind.name, "the watch lists all objects again");
        }
    }

    /// Consumes one stream of kube's watcher: a list, then watches from the resourceVersion of the list. Returns `true` when the kind
    /// must be listed again. Returns `false` if the stream ended, which never happens.
    async fn follow(&mut self) -> bool {
        let mut stream = self.state.kind.watch(self.client.clone(), self.config.clone());
        let mut listing = true;
        loop {
            let patience = self.quiet(listing).patience(self.timeout);
            let next = tokio::select! {
                next = timeout(patience, stream.next()) => next,
                () = relist_requested(&self.state.relist, self.relisted), if !listing => {
                    self.relisted = Some(Instant::now());
                    return true;
                }
            };
            match next {
                Ok(Some(Ok(event))) => {
                    listing = matches!(event, Event::Init | Event::InitApply(_));
                    self.process(event).await;
                    continue;
                }
                Ok(Some(Err(error))) => self.back_off(&error, retry_after(&error)).await,
                Ok(None) => return false,
                Err(_) => match self.quiet(listing).action(self.timeout, Instant::now()) {
                    QuietAction::CheckHistory => {}
                    QuietAction::Wait => continue,
                    QuietAction::Recovered => {
                        self.recovered();
                        continue;
                    }
                    QuietAction::Relist => {
                        self.back_off(&Unanswered, None).await;
                        return true;
                    }
                },
            }
            // After an outage (a second failure) the history proves nothing: another server may answer now.
            if !listing && (self.lost_history().await || self.failures > 1) {
                return true;
            }
        }
    }

    /// Returns the data by which the reaction to a stream that yields nothing is decided. `listing` is `true` during a list.
    fn quiet(&self, listing: bool) -> QuietWatch {
        QuietWatch {
            listing,
            attempts: self.backoff.attempts(),
            last_activity: self.state.liveness.last_activity(),
            requested: self.requested,
        }
    }

    /// Returns `true` if the server lost history that this watch has seen, so that it would not respond to a watch from that position. In
    /// that case, the next list delivers all objects again. Waits until the server responds.
    async fn lost_history(&mut self) -> bool {
        let newest = loop {
            let newest = self.state.kind.newest(self.client.clone());
            match bounded(VERSION_TIMEOUT, async { newest.await.map_err(HandlerError::from) }).await {
                Ok(newest) => break newest,
                Err(error) => self.back_off(&*error, error.retry_after()).await,
            }
        };
        let mut store = self.state.store.lock();
        let lost = store.is_ahead_of(&newest, self.state.liveness.resumed_from());
        if lost {
            store.invalidate_versions();
            warn!(kind = %self.state.kind.name, newest, "the API server has an older state than before; all objects are handled again");
        }
        lost
    }

    /// Resets the back-off and clears the last error, because the watch works again.
    fn recovered(&mut self) {
        info!(kind = %self.state.kind.name, "the watch works again");
        self.backoff.reset();
        self.failures = 0;
        self.state.counts.lock().last_error = None;
    }

    /// Processes one item of kube's stream: applies it to the store of identities, and delivers the resulting events.
    async fn process(&mut self, event: Event<WatchItem>) {
        let is_change = matches!(event, Event::Apply(_) | Event::Delete(_));
        if is_change && self.backoff.attempts() > 0 {
            self.recovered();
        }
        let liveness = Arc::clone(&self.state.liveness);
        liveness.set_busy(true);
        match event {
            Event::Init => self.state.store.lock().begin_list(),
            Event::InitApply(item) => {
                self.apply(item).await;
                if !*self.state.listed.borrow() {
                    liveness.set_busy(false);
                    self.sink.capacity().await;
                }
            }
            Event::InitDone => self.end_list().await,
            Event::Apply(item) => self.apply(item).await,
            Event::Delete(item) => {
                let event = self.state.store.lock().delete(item);
                self.deliver([event]).await;
            }
        }
        liveness.set_busy(false);
    }

    /// Delivers the change of one object, unless this state was delivered before. Reports an object that cannot be decoded.
    async fn apply(&self, item: WatchItem) {
        let applied = self.state.store.lock().apply(item);
        if let Some(object) = applied.undecodable {
            self.sink.undecodable(&object);
        }
        self.deliver(applied.events.into_iter().flatten()).await;
    }

    /// Delivers the deletions of objects that the list does not contain, and reports the end of the list.
    async fn end_list(&mut self) {
        let vanished = self.state.store.lock().end_list();
        if self.failures >= OUTAGE_FAILURES {
            // The outage is over. Only the next change shows that the watch works, too.
            self.backoff.reset();
            self.backoff.delay(None);
        }
        self.failures = 0;
        self.deliver(vanished).await;
        debug!(kind = %self.state.kind.name, "listed");
        self.state.counts.lock().lists += 1;
        self.sink.listed(self.state.kind.type_id);
        if !self.state.listed.send_replace(true) {
            self.state.liveness.set_busy(false);
            // A list that is not handled in time delays the first watch no longer.
            let _ = timeout(DRAIN_TIMEOUT, self.sink.drained()).await;
        }
        self.requested = Instant::now();
    }

    /// Counts the events and passes them to the sink.
    async fn deliver(&self, events: impl IntoIterator<Item = AnyEvent>) {
        for event in events {
            self.state.counts.lock().events[event.change() as usize] += 1;
            let result: Result<Action, HandlerError> = self.sink.handle(&event, &Context::detached()).await;
            if let Err(error) = result {
                warn!(?event, error = causes(&*error), "an event could not be queued");
            }
        }
    }

    /// Logs and counts an error, and waits for the next back-off delay, or for `retry_after` if the server requested that delay.
    async fn back_off(&mut self, error: &(dyn std::error::Error + Sync), retry_after: Option<Duration>) {
        let mut wait = self.backoff.delay(retry_after);
        let attempt = self.backoff.attempts();
        self.failures += 1;
        if self.failures >= OUTAGE_FAILURES {
            wait = wait.min(OUTAGE_BACKOFF.requeue_delay(0, retry_after));
        }
        let error = truncated(causes(error));
        warn!(kind = %self.state.kind.name, attempt, wait_ms = wait.as_millis(), error, "the watch failed");
        {
            let mut counts = self.state.counts.lock();
            counts.errors += 1;
            counts.last_error = Some(error);
        }
        tokio::time::sleep(wait).await;
        self.requested = Instant::now();
    }
}

/// Returns the delay that the server requested; `None` if it requested none.
fn retry_after(error: &watcher::Error) -> Option<Duration> {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => error.retry_after(),
        _ => None,
    }
}
