//! The state of one watch, shared by its task and the [`Watcher`](super::Watcher).

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use staffetta_handler::{Change, Kind};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::liveness::Liveness;
use super::store::ObjectStore;

/// The state of one watch. Its task writes the state, and other tasks read it.
pub(super) struct WatchState {
    /// The watched kind.
    pub(super) kind: Kind,
    /// The store of the objects that exist. It turns watch items into events.
    pub(super) store: Mutex<ObjectStore>,
    /// The times of the last activity of the server and of the task.
    pub(super) liveness: Arc<Liveness>,
    /// The time at which the watch began.
    began: Instant,
    /// The counts of events, lists and errors, for metrics and status pages.
    pub(super) counts: Mutex<WatchCounts>,
    /// The channel whose value becomes `true` after the first complete list.
    pub(super) listed: watch::Sender<bool>,
    /// Notified when all objects are to be listed again.
    pub(super) relist: Notify,
}

/// The counts of events, lists and errors of one watch.
#[derive(Clone, Debug, Default)]
pub struct WatchCounts {
    /// The number of delivered events of each type, in the order of [`Change::ALL`].
    pub events: [u64; Change::ALL.len()],
    /// The number of complete lists of all objects.
    pub lists: u64,
    /// The number of failed lists and watches.
    pub errors: u64,
    /// The last error since the watch last worked; `None` if there was none.
    pub last_error: Option<String>,
}

/// The status of one watch at one moment.
#[derive(Clone, Debug)]
pub struct WatchStatus {
    /// The kind that is watched.
    pub kind: Kind,
    /// `true` once all objects of the kind were delivered.
    pub listed: bool,
    /// The number of objects of the kind that exist, as far as the watch has reported.
    pub objects: usize,
    /// The number of objects of the kind that exist and cannot be decoded, so that no handler gets them.
    pub undecodable: usize,
    /// `true` if the task of the watch ended by itself, which is a bug of the program.
    pub ended: bool,
    /// The time at which the watch began.
    pub began: Instant,
    /// The counts of events, lists and errors since the watch began.
    pub counts: WatchCounts,
    /// The time at which the server last accepted the watch, or sent an event or a bookmark in it.
    pub last_activity: Instant,
    /// The time for which the watch has been processing one item, without the time in which it waits for capacity; `None` if it
    /// processes none.
    pub busy_for: Option<Duration>,
}

/// The time after which a watch that processes one item counts as stuck. Processing an item means adding an event to queues, which
/// takes microseconds.
const STUCK: Duration = Duration::from_secs(60);

impl WatchStatus {
    /// Merges the status of another watch of the same kind into this one: counts are added, and of two states the worse one counts.
    pub(crate) fn merge(&mut self, other: Self) {
        self.listed &= other.listed;
        self.ended |= other.ended;
        self.objects += other.objects;
        self.undecodable += other.undecodable;
        for (events, more) in self.counts.events.iter_mut().zip(other.counts.events) {
            *events += more;
        }
        self.began = self.began.min(other.began);
        self.counts.lists += other.counts.lists;
        self.counts.errors += other.counts.errors;
        self.counts.last_error = self.counts.last_error.take().or(other.counts.last_error);
        self.last_activity = self.last_activity.min(other.last_activity);
        self.busy_for = self.busy_for.max(other.busy_for);
    }

    /// Returns the reason why the watch is stuck because of a bug in the program; `None` if it is not stuck.
    pub fn stuck(&self) -> Option<String> {
        let kind = &self.kind.name;
        if self.ended {
            return Some(format!("watch {kind}: its task ended unexpectedly"));
        }
        let busy_for = self.busy_for.filter(|busy_for| *busy_for > STUCK)?;
        Some(format!("watch {kind}: it has been processing one event for {} s", busy_for.as_secs()))
    }
}

impl WatchState {
    /// Creates the state of a watch of `kind` that begins now.
    pub(super) fn new(kind: &Kind) -> Self {
        Self {
            kind: kind.clone(),
            store: Mutex::new(ObjectStore::new(kind)),
            liveness: Arc::new(Liveness::new()),
            began: Instant::now(),
            counts: Mutex::default(),
            listed: watch::Sender::new(false),
            relist: Notify::new(),
        }
    }

    /// Returns a snapshot of this state. `ended` tells if the task of the watch has ended.
    pub(super) fn status(&self, ended: bool) -> WatchStatus {
        let (objects, undecodable) = {
            let store = self.store.lock();
            (store.len(), store.undecodable_count())
        };
        WatchStatus {
            kind: self.kind.clone(),
            listed: *self.listed.borrow(),
            objects,
            undecodable,
            ended,
            began: self.began,
            counts: self.counts.lock().clone(),
            last_activity: self.liveness.last_activity(),
            busy_for: self.liveness.busy_for(),
        }
    }
}
