//! Watches kinds of objects and delivers their changes as events.

mod liveness;
mod status;
mod store;
mod watch_task;

use std::any::TypeId;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::api::{ListParams, ObjectList, Request};
use kube::runtime::watcher;
use parking_lot::Mutex;
use serde_json::Value;
use staffetta_handler::{AnyEvent, EventHandler, Kind, Object, Undecodable, WatchItem};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use status::WatchState;
pub use status::{WatchCounts, WatchStatus};
use watch_task::WatchTask;

/// A receiver of the events of a [`Watcher`], such as the pipeline of handlers.
pub trait EventSink: EventHandler<AnyEvent> {
    /// Reports that all objects of a kind were delivered.
    fn listed(&self, kind: TypeId);

    /// Completes when more objects of an initial list can be accepted. Events of a watch never wait for that.
    fn capacity(&self) -> impl Future<Output = ()> + Send;

    /// Completes when nearly all delivered events are handled. The first watch after the initial list waits for that, for a limited
    /// time, because it begins with the events of all writes since the list.
    fn drained(&self) -> impl Future<Output = ()> + Send;

    /// Reports an object that cannot be decoded: once for each state of the object, for at most 1000 objects of a kind.
    fn undecodable(&self, object: &Undecodable);
}

/// The reason why [`Watcher::read`] failed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Several namespaces, which are listed here, have an object of this name.
    #[error("it exists in several namespaces: {0}")]
    Ambiguous(String),
    /// The API server cannot be reached, or rejects the request.
    #[error(transparent)]
    Api(#[from] kube::Error),
}

/// A watcher of any number of kinds, each once, which delivers their events to an `S`. Dropping the watcher ends all watches.
///
/// Each watch lists the objects in pages, and then watches with bookmarks. After an error, it waits with back-off and continues. It
/// lists all objects again after an outage (a second consecutive failure), and when the server no longer has the history from its
/// position on (410). It never gives up. If the server lost history, because its data was lost or restored from a backup, all objects
/// are delivered again. Watches can be added at any time.
pub struct Watcher<S> {
    client: Client,
    config: watcher::Config,
    sink: Arc<S>,
    watches: Mutex<HashMap<TypeId, WatchEntry>>,
}

/// The watch of one kind: its state and its task.
struct WatchEntry {
    state: Arc<WatchState>,
    task: AbortOnDropHandle<()>,
}

impl<S: EventSink> Watcher<S> {
    /// Creates a watcher that uses `client` and delivers to `sink`. Call it within a tokio runtime.
    pub fn new(client: Client, sink: Arc<S>) -> Self {
        Self { client, config: watcher::Config::default(), sink, watches: Mutex::default() }
    }

    /// Sets the number of objects in one page of a list.
    #[must_use]
    pub fn page_size(mut self, size: u32) -> Self {
        self.config.page_size = Some(size);
        self
    }

    /// Sets the duration of one watch request, from 1 s to 294 s; kube detects a dead connection 5 s later. After twice this time
    /// without an event, and after each error, the watch compares the newest resourceVersion that it has seen with the current one of
    /// the server. If the server has not even accepted the watch by then, all objects are listed again.
    #[must_use]
    pub fn watch_timeout(mut self, time: Duration) -> Self {
        self.config.timeout = Some(u32::try_from(time.as_secs()).unwrap_or(u32::MAX).clamp(1, 294));
        self
    }

    /// Watches `kind`, unless it is watched already.
    pub fn add(&self, kind: &Kind) {
        self.start(kind, None);
    }

    /// Watches `kind`, unless it is watched already. If the kind `first` is watched, all its objects are delivered before those of `kind`.
    pub fn add_after(&self, kind: &Kind, first: TypeId) {
        let first = self.watches.lock().get(&first).map(|watch| watch.state.listed.subscribe());
        self.start(kind, first);
    }

    /// Starts the watch of `kind`, unless there is one already. If `first` is given, which tells if another kind is listed, the watch
    /// begins as soon as its value is `true` or the watch of that kind was ended; otherwise at once.
    fn start(&self, kind: &Kind, first: Option<watch::Receiver<bool>>) {
        self.watches.lock().entry(kind.type_id).or_insert_with(|| {
            let state = Arc::new(WatchState::new(kind));
            let (client, sink) = (self.client.clone(), Arc::clone(&self.sink));
            let task = WatchTask::new(&state, client, self.config.clone(), sink);
            let run = async move {
                if let Some(mut first) = first {
                    // It fails if that watch was ended, which then delivers no more.
                    let _ = first.wait_for(|listed| *listed).await;
                }
                task.run().await;
            };
            WatchEntry { state, task: AbortOnDropHandle::new(tokio::spawn(run)) }
        });
    }

    /// Delivers the objects in `namespace` again, as `Modified`, for example after a change of the namespace itself. To do so, lists all
    /// objects of each kind for which `selected` returns `true` and that has objects in the namespace.
    pub fn deliver_again(&self, namespace: &str, selected: impl Fn(&Kind) -> bool) {
        for WatchEntry { state, .. } in
            self.watches.lock().values().filter(|watch| selected(&watch.state.kind))
        {
            if state.store.lock().invalidate_namespace(namespace) {
                state.relist.notify_one();
            }
        }
    }

    /// Ends the watch of a kind, if there is one. Events that were already delivered stay in the queues. When the kind is watched again, all
    /// its objects are delivered as `Added`.
    pub fn remove(&self, kind: TypeId) {
        self.watches.lock().remove(&kind);
    }

    /// Ends all watches. Events that were already delivered stay in the queues.
    pub fn stop(&self) {
        self.watches.lock().clear();
    }

    /// Returns the status of each watch.
    pub fn statuses(&self) -> Vec<WatchStatus> {
        self.watches.lock().values().map(|watch| watch.state.status(watch.task.is_finished())).collect()
    }

    /// Returns the objects that cannot be decoded, at most 1000 of each kind. [`WatchStatus::undecodable`] counts all of them.
    pub fn undecodable(&self) -> Vec<Undecodable> {
        let of = |watch: &WatchEntry| watch.state.store.lock().undecodable().cloned().collect::<Vec<_>>();
        self.watches.lock().values().flat_map(of).collect()
    }

    /// Completes when all objects of all kinds were delivered once; never if the task of a watch panicked before, which liveness reports.
    pub async fn until_listed(&self) {
        let listed: Vec<_> =
            self.watches.lock().values().map(|watch| watch.state.listed.subscribe()).collect();
        for mut listed in listed {
            // It fails if the watch was ended.
            let _ = listed.wait_for(|listed| *listed).await;
        }
    }

    /// Returns the UIDs of all objects of a kind; `None` if the kind is not watched or was never listed completely.
    pub fn uids(&self, kind: TypeId) -> Option<HashSet<String>> {
        let watches = self.watches.lock();
        let watch = watches.get(&kind).filter(|watch| *watch.state.listed.borrow())?;
        Some(watch.state.store.lock().uids())
    }

    /// Returns `true` if the store of a watch has an object of that name. `None` matches any kind or namespace; the case of the kind is
    /// ignored.
    pub fn contains(&self, kind: Option<&str>, namespace: Option<&str>, name: &str) -> bool {
        let selected =
            |watch: &&WatchEntry| kind.is_none_or(|kind| kind.eq_ignore_ascii_case(&watch.state.kind.name));
        let contains = |watch: &WatchEntry| watch.state.store.lock().find(namespace, name).next().is_some();
        self.watches.lock().values().filter(selected).any(contains)
    }

    /// Reads the object `namespace`/`name` from the API server, if it exists in the store of a watch of `kind` (the case is ignored).
    /// Returns it decoded: once for each watch of that kind, since kinds of several API groups may have the same name; empty if it does not
    /// exist or its fields cannot be decoded. Without `namespace`, finds the object in any namespace, and fails if several of them have it.
    pub async fn read(
        &self,
        kind: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Vec<Arc<dyn Object>>, ReadError> {
        let found: Vec<_> = {
            let watches = self.watches.lock();
            let watches = watches.values().filter(|watch| watch.state.kind.name.eq_ignore_ascii_case(kind));
            watches
                .flat_map(|watch| {
                    let store = watch.state.store.lock();
                    let found = store.find(namespace, name);
                    found.map(|found| (watch.state.kind.clone(), found.to_owned())).collect::<Vec<_>>()
                })
                .collect()
        };
        let namespaces: BTreeSet<&str> = found.iter().map(|(_, namespace)| namespace.as_str()).collect();
        if namespaces.len() > 1 {
            return Err(ReadError::Ambiguous(namespaces.into_iter().collect::<Vec<_>>().join(", ")));
        }
        // The rights of a watch are those to list, not to get.
        let named = ListParams::default().fields(&format!("metadata.name={name}"));
        let mut objects = Vec::new();
        for (kind, namespace) in found {
            let path = match kind.path.rsplit_once('/') {
                Some((api, plural)) if !namespace.is_empty() => {
                    format!("{api}/namespaces/{namespace}/{plural}")
                }
                _ => kind.path.clone(),
            };
            let request = Request::new(path).list(&named).map_err(kube::Error::BuildRequest)?;
            let list: ObjectList<Value> = self.client.request(request).await?;
            let Some(object) = list.items.into_iter().next() else { continue };
            if let WatchItem::Object(object) = kind.decode(object).map_err(kube::Error::SerdeError)? {
                objects.push(object);
            }
        }
        Ok(objects)
    }
}

#[cfg(test)]
mod tests;
