//! The task of one watch: follows kube's stream, and does what [`Moment`] says where that has nothing to say.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use kube::Client;
use kube::runtime::watcher;
use staffetta_handler::{
    AnyEvent, Backoff, Failure, HandlerError, Kind, Message, Sighting, Turn, bounded, causes, shortened,
};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::course::Course;
use super::moment::{Moment, Next};
use super::undecodable::UndecodableObjects;
use super::{BACKOFF, Sink};
use crate::client::Silence;
use crate::known::Known;
use crate::lock::lock;

/// How long the server may take to say where in its history it is.
const WHERE: Duration = Duration::from_secs(10);

/// How long the first watch waits at most for what the list brought to be done.
const SETTLES: Duration = Duration::from_secs(10);

/// The task of one watch.
pub(super) struct OneWatch<S> {
    pub(super) kind: Kind,
    pub(super) client: Client,
    pub(super) config: watcher::Config,
    pub(super) known: Arc<Mutex<Known>>,
    pub(super) sink: Arc<S>,
    pub(super) listed: watch::Sender<bool>,
    pub(super) course: Arc<Course>,
    pub(super) undecodable: Arc<Mutex<UndecodableObjects>>,
    /// The waits after errors. A list does not start them anew: who may list and not watch would list for ever.
    pub(super) backoff: Backoff,
    /// How often the watch failed since all was listed, or since it went on.
    pub(super) failures: u32,
    /// When it was asked for again after it failed last.
    pub(super) failed: Instant,
    /// The same, or when all was listed after that.
    pub(super) begun: Instant,
    /// How long the server is asked to let a watch last.
    pub(super) timeout: Duration,
    pub(super) silence: Arc<Silence>,
}

/// Why a watch ended.
enum Ended {
    /// It must list anew.
    Behind,
    /// kube's watch ended by itself, which it never does.
    ByItself,
}

/// The server took a request and gave no answer.
#[derive(Debug, thiserror::Error)]
#[error("the API server leaves a request without an answer")]
struct Unanswered;

impl<S: Sink> OneWatch<S> {
    pub(super) async fn run(mut self) {
        while let Ended::Behind = self.follow().await {
            info!(kind = %self.kind.name, "the watch lists anew");
        }
    }

    /// One stream of kube's: a list, then watches from where it stood.
    async fn follow(&mut self) -> Ended {
        let mut stream = self.kind.watch(self.client.clone(), self.config.clone());
        let mut lists = true;
        loop {
            let patience = self.moment(lists).patience(self.timeout);
            match tokio::time::timeout(patience, stream.next()).await {
                Ok(Some(Ok(event))) => {
                    lists = matches!(event, watcher::Event::Init | watcher::Event::InitApply(_));
                    self.take(event).await;
                    continue;
                }
                Ok(Some(Err(error))) => self.back_off(&error, hint(&error)).await,
                Ok(None) => return Ended::ByItself,
                Err(_) => match self.moment(lists).next(self.timeout, Instant::now()) {
                    Next::Ask => {}
                    Next::Wait => continue,
                    Next::GoOn => {
                        self.goes_on();
                        continue;
                    }
                    Next::GiveUp => {
                        self.back_off(&Unanswered, None).await;
                        return Ended::Behind;
                    }
                },
            }
            // What happened in an outage is not for the history to tell: it may be another server's by now.
            if !lists && (self.history_went_back().await || self.failures > 1) {
                return Ended::Behind;
            }
        }
    }

    fn moment(&self, lists: bool) -> Moment {
        let heard = self.silence.last_heard(&self.kind.path);
        Moment { lists, attempts: self.backoff.attempts(), heard, failed: self.failed, begun: self.begun }
    }

    /// Whether the server has lost what it said before: to watch on from there would be answered with silence. An outage
    /// is waited out here.
    async fn history_went_back(&mut self) -> bool {
        loop {
            let newest = self.kind.newest(self.client.clone());
            match bounded(WHERE, async { newest.await.map_err(HandlerError::from) }).await {
                Ok(newest) => return self.rewound(&newest),
                Err(error) => self.back_off(&*error, error.retry_after()).await,
            }
        }
    }

    fn goes_on(&mut self) {
        info!(kind = %self.kind.name, "the watch goes on");
        self.backoff = BACKOFF.start();
        self.failures = 0;
        self.course.goes_on();
    }

    fn rewound(&self, newest: &str) -> bool {
        let mut known = lock(&self.known);
        let back = known.is_ahead_of(newest, self.silence.reached(&self.kind.path));
        if back {
            known.rewind();
            warn!(kind = %self.kind.name, newest, "the API server's history went back; all objects are handled again");
        }
        back
    }

    async fn take(&mut self, event: watcher::Event<Sighting>) {
        let happened = matches!(event, watcher::Event::Apply(_) | watcher::Event::Delete(_));
        if happened && self.backoff.attempts() > 0 {
            self.goes_on();
        }
        self.course.works(true);
        self.take_in(event).await;
        self.course.works(false);
    }

    async fn take_in(&mut self, event: watcher::Event<Sighting>) {
        match event {
            watcher::Event::Init => lock(&self.known).list_begins(),
            watcher::Event::InitApply(seen) => {
                self.apply(seen).await;
                if !*self.listed.borrow() {
                    self.course.works(false);
                    self.sink.room().await;
                }
            }
            watcher::Event::InitDone => {
                let vanished = lock(&self.known).list_ends();
                self.forget_undecodable();
                self.failures = 0;
                self.deliver(vanished).await;
                debug!(kind = %self.kind.name, "listed");
                self.course.listed();
                self.sink.listed(self.kind.type_id);
                if !self.listed.send_replace(true) {
                    self.course.works(false);
                    let _ = tokio::time::timeout(SETTLES, self.sink.settled()).await;
                }
                // What comes next is the watch, for the first time since.
                self.begun = Instant::now();
            }
            watcher::Event::Apply(seen) => self.apply(seen).await,
            watcher::Event::Delete(seen) => {
                self.note(&seen, false);
                let event = lock(&self.known).deleted(seen);
                self.deliver(event).await;
            }
        }
    }

    async fn apply(&self, seen: Sighting) {
        self.note(&seen, true);
        let events = lock(&self.known).applied(seen);
        self.deliver(events.into_iter().flatten()).await;
    }

    /// Forgets what cannot be decoded and went while nobody watched.
    fn forget_undecodable(&self) {
        let mut undecodable = lock(&self.undecodable);
        if !undecodable.is_empty() {
            undecodable.retain(&lock(&self.known).uids());
        }
    }

    /// Remembers what cannot be decoded, as long as it is there and cannot be.
    fn note(&self, seen: &Sighting, there: bool) {
        let mut undecodable = lock(&self.undecodable);
        match seen {
            Sighting::Undecodable(object) if there => {
                let is_news = undecodable.seen(object);
                drop(undecodable);
                if is_news {
                    self.sink.undecodable(object);
                }
            }
            Sighting::Undecodable(object) => undecodable.forget(&object.identity.uid),
            Sighting::Object(object) => undecodable.forget(object.meta().uid.as_deref().unwrap_or_default()),
        }
    }

    async fn deliver(&self, events: impl IntoIterator<Item = AnyEvent>) {
        for event in events {
            self.course.happened(event.change());
            let result: Result<(), HandlerError> = self.sink.handle(&event, &Turn::alone()).await;
            if let Err(error) = result {
                warn!(?event, error = causes(&*error), "an event was not taken in");
            }
        }
    }

    async fn back_off(&mut self, error: &(dyn std::error::Error + Sync), hint: Option<Duration>) {
        let wait = self.backoff.next_wait(hint).unwrap_or(BACKOFF.max);
        let attempt = self.backoff.attempts();
        self.failures += 1;
        let error = shortened(causes(error));
        warn!(kind = %self.kind.name, attempt, wait_ms = wait.as_millis(), error, "the watch failed");
        self.course.failed(error);
        tokio::time::sleep(wait).await;
        self.failed = Instant::now();
        self.begun = self.failed;
    }
}

/// How long the server asks to be left alone.
fn hint(error: &watcher::Error) -> Option<Duration> {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => error.retry_after(),
        _ => None,
    }
}
