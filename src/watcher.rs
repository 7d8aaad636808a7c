//! Watches kinds of objects and says what happened to them.

use std::any::TypeId;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::StreamExt;
use kube::Client;
use kube::runtime::watcher;
use staffetta_handler::{
    AnyEvent, Backoff, BackoffPolicy, EventHandler, Failure, HandlerError, Kind, Message, Sighting, Turn,
    Undecodable, bounded, causes,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::client::Silence;
use crate::known::Known;
use crate::lock::lock;
use course::Course;
pub use course::{Sight, SoFar};

mod course;

/// Where a [`Watcher`] delivers.
pub trait Sink: EventHandler<AnyEvent> {
    /// All objects of a kind were delivered once.
    fn listed(&self, kind: TypeId);

    /// Ends when there is room for more of a list. Nothing but a list ever waits for it.
    fn room(&self) -> impl Future<Output = ()> + Send;

    /// The server sent something that is no object of its kind. It is told once for each state of it.
    fn undecodable(&self, object: &Undecodable);
}

/// The waits after an error of a watch; they start anew when the server says something.
const BACKOFF: BackoffPolicy =
    BackoffPolicy { initial: Duration::from_secs(1), max: Duration::from_secs(30), limit: None };

/// How long kube's watch lasts when nobody says otherwise.
const WATCH_TIMEOUT: Duration = Duration::from_secs(290);

/// How long the server may take to say where in its history it is.
const WHERE: Duration = Duration::from_secs(10);

/// How long the server may take for a page of a list, or to take a watch up again: the limit that it has itself.
const ANSWER: Duration = Duration::from_secs(60);

/// After this time a watch that failed looks whether the server took it up again, which no event tells.
const LOOK: Duration = Duration::from_secs(1);

/// How many undecodable objects of a kind are remembered.
const UNDECODABLE: usize = 1000;

/// Watches any number of kinds, each once, and delivers to `S`.
///
/// Each watch lists in pages and then watches with bookmarks. After an error it backs off and goes on where it was; after
/// an outage (the first attempt to go on fails too), or when the server has forgotten its place in the history (410), it lists
/// again, for ever. When the server's history went back, because its data was lost or replaced by an older one, all objects
/// are delivered again. Watches can be added and removed while it runs.
pub struct Watcher<S> {
    client: Client,
    config: watcher::Config,
    sink: Arc<S>,
    watches: Mutex<HashMap<TypeId, Watch>>,
    timeout: Duration,
    silence: Arc<Silence>,
}

struct Watch {
    kind: Kind,
    known: Arc<Mutex<Known>>,
    listed: watch::Receiver<bool>,
    course: Arc<Course>,
    undecodable: Arc<Mutex<HashMap<String, Undecodable>>>,
    task: JoinHandle<()>,
}

impl Watch {
    fn sight(&self) -> Sight {
        Sight {
            kind: self.kind.clone(),
            listed: *self.listed.borrow(),
            objects: lock(&self.known).len(),
            undecodable: lock(&self.undecodable).len(),
            ended: self.task.is_finished(),
            so_far: self.course.so_far(),
        }
    }
}

impl<S: Sink> Watcher<S> {
    /// Watches through `client` and delivers to `sink`; it must be used within a tokio runtime.
    pub fn new(client: Client, sink: Arc<S>) -> Self {
        Self {
            client,
            config: watcher::Config::default(),
            sink,
            watches: Mutex::default(),
            timeout: WATCH_TIMEOUT,
            silence: Arc::default(),
        }
    }

    /// Knows from `silence` what kube's watch does not tell: whether the server took a watch up again, and how far bookmarks
    /// took it.
    #[must_use]
    pub(crate) fn overheard(mut self, silence: Arc<Silence>) -> Self {
        self.silence = silence;
        self
    }

    /// Asks for `size` objects at a time when it lists.
    #[must_use]
    pub fn page_size(mut self, size: u32) -> Self {
        self.config.page_size = Some(size);
        self
    }

    /// Asks anew after this time, from 1 s to 294 s; a connection that died without a word is found 5 s later. After twice
    /// this time without news, and after each error, a watch asks where in its history the server is.
    #[must_use]
    pub fn watch_timeout(mut self, time: Duration) -> Self {
        let seconds = u32::try_from(time.as_secs()).unwrap_or(u32::MAX).clamp(1, 294);
        self.config.timeout = Some(seconds);
        self.timeout = Duration::from_secs(seconds.into());
        self
    }

    /// Watches `kind`, unless it is watched already.
    pub fn add(&self, kind: &Kind) {
        let mut watches = self.watches();
        if watches.contains_key(&kind.type_id) {
            return;
        }
        let known = Arc::new(Mutex::new(Known::new(kind)));
        let (done, listed) = watch::channel(false);
        let course = Arc::<Course>::default();
        let undecodable = Arc::<Mutex<HashMap<String, Undecodable>>>::default();
        let one = OneWatch {
            kind: kind.clone(),
            client: self.client.clone(),
            config: self.config.clone(),
            known: Arc::clone(&known),
            sink: Arc::clone(&self.sink),
            listed: done,
            course: Arc::clone(&course),
            undecodable: Arc::clone(&undecodable),
            backoff: BACKOFF.start(),
            failed: Instant::now(),
            quiet: self.timeout * 2,
            silence: Arc::clone(&self.silence),
        };
        let task = tokio::spawn(one.run());
        let watch = Watch { kind: kind.clone(), known, listed, course, undecodable, task };
        watches.insert(kind.type_id, watch);
    }

    /// Ends the watch of `kind`. What was delivered before stays in the queues.
    pub fn remove(&self, kind: &Kind) {
        if let Some(watch) = self.watches().remove(&kind.type_id) {
            watch.task.abort();
        }
    }

    /// Ends all watches.
    pub fn stop(&self) {
        self.watches().drain().for_each(|(_, watch)| watch.task.abort());
    }

    /// How each watch is at this moment, by the name of its kind.
    pub fn sights(&self) -> Vec<Sight> {
        let mut sights: Vec<_> = self.watches().values().map(Watch::sight).collect();
        sights.sort_unstable_by(|one, other| one.kind.name.cmp(&other.kind.name));
        sights
    }

    /// The objects that exist and cannot be decoded.
    pub fn undecodable(&self) -> Vec<Undecodable> {
        let of = |watch: &Watch| lock(&watch.undecodable).values().cloned().collect::<Vec<_>>();
        self.watches().values().flat_map(of).collect()
    }

    /// The watches that ended by themselves, which none ever should.
    pub fn ended(&self) -> Vec<String> {
        self.watches()
            .values()
            .filter(|watch| watch.task.is_finished())
            .map(|watch| watch.kind.name.clone().into_owned())
            .collect()
    }

    /// Ends when each watch has seen all objects of its kind.
    pub async fn until_listed(&self) {
        let listed: Vec<_> = self.watches().values().map(|watch| watch.listed.clone()).collect();
        for mut listed in listed {
            if listed.wait_for(|listed| *listed).await.is_err() && !self.ended().is_empty() {
                // It was not removed, it died: that is for liveness to tell, and nobody is ready.
                std::future::pending::<()>().await;
            }
        }
    }

    /// The UIDs of the objects of a kind that exist; none when the kind is not watched, or not known to its end yet.
    pub fn uids(&self, kind: TypeId) -> Option<HashSet<String>> {
        let watches = self.watches();
        let watch = watches.get(&kind).filter(|watch| *watch.listed.borrow())?;
        Some(lock(&watch.known).uids())
    }

    fn watches(&self) -> MutexGuard<'_, HashMap<TypeId, Watch>> {
        lock(&self.watches)
    }
}

impl<S> Drop for Watcher<S> {
    fn drop(&mut self) {
        lock(&self.watches).drain().for_each(|(_, watch)| watch.task.abort());
    }
}

/// The task of one watch.
struct OneWatch<S> {
    kind: Kind,
    client: Client,
    config: watcher::Config,
    known: Arc<Mutex<Known>>,
    sink: Arc<S>,
    listed: watch::Sender<bool>,
    course: Arc<Course>,
    undecodable: Arc<Mutex<HashMap<String, Undecodable>>>,
    backoff: Backoff,
    /// When it failed last.
    failed: Instant,
    /// After this time without news it asks where in its history the server is.
    quiet: Duration,
    silence: Arc<Silence>,
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
#[error("the API server gives no answer within {} s", ANSWER.as_secs())]
struct Unanswered;

impl<S: Sink> OneWatch<S> {
    async fn run(mut self) {
        while let Ended::Behind = self.follow().await {
            info!(kind = %self.kind.name, "the watch lists anew");
        }
    }

    /// One stream of kube's: a list, then watches from where it stood.
    async fn follow(&mut self) -> Ended {
        let mut stream = self.kind.watch(self.client.clone(), self.config.clone());
        let mut lists = true;
        loop {
            let patience = match self.backoff.attempts() {
                _ if lists => ANSWER,
                0 => self.quiet,
                _ => LOOK,
            };
            match tokio::time::timeout(patience, stream.next()).await {
                Ok(Some(Ok(event))) => {
                    lists = matches!(event, watcher::Event::Init | watcher::Event::InitApply(_));
                    self.take(event).await;
                    continue;
                }
                Ok(Some(Err(error))) => {
                    self.back_off(&error, hint(&error)).await;
                }
                Ok(None) => return Ended::ByItself,
                Err(_) if lists || self.is_refused_a_watch() => {
                    self.back_off(&Unanswered, None).await;
                    return Ended::Behind;
                }
                Err(_) if self.backoff.attempts() > 0 => {
                    self.notice_recovery();
                    continue;
                }
                Err(_) => {}
            }
            // What happened in an outage is not for the history to tell: it may be another server's by now.
            if !lists && (self.history_went_back().await || self.backoff.attempts() > 1) {
                return Ended::Behind;
            }
        }
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

    /// A watch that the server took up again and did not break at once goes on, even when nothing happens to its objects. Only
    /// who has looked for a while may say so: one that is taken up and broken each time has to list anew.
    fn notice_recovery(&mut self) {
        if self.backoff.attempts() > 0 && self.heard().is_some_and(|heard| heard > self.failed) {
            self.goes_on();
        }
    }

    /// Whether the server has left a watch that failed without any answer for too long.
    fn is_refused_a_watch(&self) -> bool {
        let unheard = self.heard().is_some_and(|heard| heard <= self.failed);
        self.backoff.attempts() > 0 && unheard && self.failed.elapsed() > ANSWER
    }

    fn heard(&self) -> Option<Instant> {
        self.silence.last_heard(&self.kind.path)
    }

    fn goes_on(&mut self) {
        info!(kind = %self.kind.name, "the watch goes on");
        self.backoff = BACKOFF.start();
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
        if !matches!(event, watcher::Event::Init) && self.backoff.attempts() > 0 {
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
                self.deliver(vanished).await;
                debug!(kind = %self.kind.name, "listed");
                self.course.listed();
                self.sink.listed(self.kind.type_id);
                self.listed.send_replace(true);
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
            let there = lock(&self.known).uids();
            undecodable.retain(|uid, _| there.contains(uid));
        }
    }

    /// Remembers what cannot be decoded, as long as it is there and cannot be.
    fn note(&self, seen: &Sighting, there: bool) {
        let mut undecodable = lock(&self.undecodable);
        match seen {
            Sighting::Undecodable(object) if there => {
                let before = undecodable.get(&object.identity.uid);
                if before != Some(object) && undecodable.len() < UNDECODABLE {
                    undecodable.insert(object.identity.uid.clone(), object.clone());
                    drop(undecodable);
                    self.sink.undecodable(object);
                }
            }
            Sighting::Undecodable(object) => {
                undecodable.remove(&object.identity.uid);
            }
            Sighting::Object(object) if !undecodable.is_empty() => {
                undecodable.remove(object.meta().uid.as_deref().unwrap_or_default());
            }
            Sighting::Object(_) => {}
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
        self.course.failed(causes(error));
        warn!(kind = %self.kind.name, attempt, wait_ms = wait.as_millis(), error = causes(error), "the watch failed");
        tokio::time::sleep(wait).await;
        self.failed = Instant::now();
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
