//! Watches kinds of objects and says what happened to them.

use std::any::TypeId;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use kube::Client;
use kube::runtime::watcher;
use staffetta_handler::{
    AnyEvent, Backoff, BackoffPolicy, EventHandler, HandlerError, Kind, Message, Object, Turn, causes,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{debug, info, warn};

use crate::known::Known;
use course::Course;
pub use course::Sight;

mod course;

/// Where a [`Watcher`] delivers.
pub trait Sink: EventHandler<AnyEvent> {
    /// All objects of a kind were delivered once.
    fn listed(&self, kind: TypeId);

    /// Ends when there is room for more of a list. Nothing but a list ever waits for it.
    fn room(&self) -> impl Future<Output = ()> + Send;
}

/// The waits after an error of a watch; they start anew when the server says something.
const BACKOFF: BackoffPolicy =
    BackoffPolicy { initial: Duration::from_secs(1), max: Duration::from_secs(30), limit: None };

/// Watches any number of kinds, each once, and delivers to `S`.
///
/// Each watch lists in pages and then watches with bookmarks. After an error, an outage, or when the server has
/// forgotten its place in the history (410), it backs off, lists again and goes on, for ever. Watches can be added and
/// removed while it runs.
pub struct Watcher<S> {
    client: Client,
    config: watcher::Config,
    sink: Arc<S>,
    watches: Mutex<HashMap<TypeId, Watch>>,
}

struct Watch {
    kind: Kind,
    known: Arc<Mutex<Known>>,
    listed: watch::Receiver<bool>,
    course: Arc<Course>,
    task: JoinHandle<()>,
}

impl Watch {
    fn sight(&self) -> Sight {
        let objects = lock(&self.known).count();
        self.course.sight(&self.kind, *self.listed.borrow(), objects, self.task.is_finished())
    }
}

impl<S: Sink> Watcher<S> {
    /// Watches through `client` and delivers to `sink`; it must be used within a tokio runtime.
    pub fn new(client: Client, sink: Arc<S>) -> Self {
        Self { client, config: watcher::Config::default(), sink, watches: Mutex::default() }
    }

    /// Asks for `size` objects at a time when it lists.
    #[must_use]
    pub fn page_size(mut self, size: u32) -> Self {
        self.config.page_size = Some(size);
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
        let one = OneWatch {
            kind: kind.clone(),
            client: self.client.clone(),
            config: self.config.clone(),
            known: Arc::clone(&known),
            sink: Arc::clone(&self.sink),
            listed: done,
            course: Arc::clone(&course),
            backoff: BACKOFF.start(),
        };
        let watch = Watch { kind: kind.clone(), known, listed, course, task: tokio::spawn(one.run()) };
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
    backoff: Backoff,
}

impl<S: Sink> OneWatch<S> {
    async fn run(mut self) {
        let mut stream = self.kind.watch(self.client.clone(), self.config.clone());
        while let Some(said) = stream.next().await {
            match said {
                Ok(event) => self.take(event).await,
                Err(error) => self.back_off(&error).await,
            }
        }
    }

    async fn take(&mut self, event: watcher::Event<Arc<dyn Object>>) {
        if !matches!(event, watcher::Event::Init) && self.backoff.attempts() > 0 {
            info!(kind = %self.kind.name, "the watch goes on");
            self.backoff = BACKOFF.start();
            self.course.goes_on();
        }
        self.course.works(true);
        self.take_in(event).await;
        self.course.works(false);
    }

    async fn take_in(&mut self, event: watcher::Event<Arc<dyn Object>>) {
        match event {
            watcher::Event::Init => lock(&self.known).list_begins(),
            watcher::Event::InitApply(object) => {
                let events = lock(&self.known).applied(object);
                self.deliver(events.into_iter().flatten()).await;
                if !*self.listed.borrow() {
                    self.course.works(false);
                    self.sink.room().await;
                }
            }
            watcher::Event::InitDone => {
                let vanished = lock(&self.known).list_ends();
                self.deliver(vanished).await;
                debug!(kind = %self.kind.name, "listed");
                self.course.listed();
                self.sink.listed(self.kind.type_id);
                self.listed.send_replace(true);
            }
            watcher::Event::Apply(object) => {
                let events = lock(&self.known).applied(object);
                self.deliver(events.into_iter().flatten()).await;
            }
            watcher::Event::Delete(object) => {
                let event = lock(&self.known).deleted(object);
                self.deliver(event).await;
            }
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

    async fn back_off(&mut self, error: &watcher::Error) {
        let wait = self.backoff.next_wait(None).unwrap_or(BACKOFF.max);
        let attempt = self.backoff.attempts();
        self.course.failed(causes(error));
        warn!(kind = %self.kind.name, attempt, wait_ms = wait.as_millis(), error = causes(error), "the watch failed");
        tokio::time::sleep(wait).await;
    }
}
