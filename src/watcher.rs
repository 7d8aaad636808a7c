//! Watches kinds of objects and says what happened to them.

use std::any::TypeId;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use kube::Client;
use kube::runtime::watcher;
use staffetta_handler::{AnyEvent, BackoffPolicy, EventHandler, Kind, Undecodable};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::client::Silence;
use crate::known::Known;
use crate::lock::lock;
use course::Course;
pub use course::{Sight, SoFar};
use one_watch::OneWatch;
use undecodable::UndecodableObjects;

mod course;
mod moment;
mod one_watch;
mod undecodable;

/// Where a [`Watcher`] delivers.
pub trait Sink: EventHandler<AnyEvent> {
    /// All objects of a kind were delivered once.
    fn listed(&self, kind: TypeId);

    /// Ends when there is room for more of a list. Nothing but a list ever waits for it.
    fn room(&self) -> impl Future<Output = ()> + Send;

    /// Ends when next to all that was delivered is done. The first watch after a list waits for it, but not for long: it begins
    /// with the echo of each write since, and an echo is to find nobody in its way.
    fn settled(&self) -> impl Future<Output = ()> + Send;

    /// The server sent something that is no object of its kind. It is told once for each state of it, of a thousand objects of a
    /// kind at most.
    fn undecodable(&self, object: &Undecodable);
}

/// The waits after an error of a list or a watch; they start anew when the watch goes on.
const BACKOFF: BackoffPolicy =
    BackoffPolicy { initial: Duration::from_secs(1), max: Duration::from_secs(30), limit: None };

/// How long kube's watch lasts when nobody says otherwise.
const WATCH_TIMEOUT: Duration = Duration::from_secs(290);

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
    undecodable: Arc<Mutex<UndecodableObjects>>,
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
    /// this time without news, and after each error, a watch asks where in its history the server is; when by then it was not
    /// even taken up anew, it is given up, and all is listed.
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
        let undecodable = Arc::<Mutex<UndecodableObjects>>::default();
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
            failures: 0,
            failed: Instant::now(),
            begun: Instant::now(),
            timeout: self.timeout,
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

    /// The objects that exist and cannot be decoded, a thousand of each kind at most; [`Sight::undecodable`] counts them all.
    pub fn undecodable(&self) -> Vec<Undecodable> {
        let of = |watch: &Watch| lock(&watch.undecodable).remembered().cloned().collect::<Vec<_>>();
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

    /// Whether an object of that name exists, of any kind and in any namespace where none is said. A kind may be written in
    /// any case.
    pub fn knows(&self, kind: Option<&str>, namespace: Option<&str>, name: &str) -> bool {
        let asked = |watch: &&Watch| kind.is_none_or(|kind| kind.eq_ignore_ascii_case(&watch.kind.name));
        self.watches().values().filter(asked).any(|watch| lock(&watch.known).has(namespace, name))
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

#[cfg(test)]
mod tests;
