//! The state of one watch, shared by its task and the [`Watcher`](super::Watcher).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use staffetta_handler::{Change, Kind};
use tokio::time::Instant;

use super::liveness::Liveness;
use super::store::ObjectStore;
use crate::lock::lock;

/// The state of one watch: written by its task, read by anyone.
pub(super) struct WatchState {
    pub(super) kind: Kind,
    pub(super) store: Mutex<ObjectStore>,
    pub(super) liveness: Arc<Liveness>,
    pub(super) counts: Mutex<WatchCounts>,
}

/// The counts of one watch.
#[derive(Clone, Debug, Default)]
pub struct WatchCounts {
    /// The number of delivered events, by change in the order of [`Change::ALL`].
    pub events: [u64; Change::ALL.len()],
    /// The number of complete lists.
    pub lists: u64,
    /// The number of errors.
    pub errors: u64,
    /// The last error, until the watch works again.
    pub last_error: Option<String>,
}

/// A snapshot of one watch.
#[derive(Clone, Debug)]
pub struct WatchStatus {
    /// The kind that is watched.
    pub kind: Kind,
    /// `true` once all objects of the kind were delivered.
    pub listed: bool,
    /// The number of objects that exist.
    pub objects: usize,
    /// The number of objects that cannot be decoded.
    pub undecodable: usize,
    /// `true` if the watch's task ended by itself, which is a defect.
    pub ended: bool,
    /// The counts of its events, lists and errors.
    pub counts: WatchCounts,
    /// The time at which the server last accepted the watch or sent an event or a bookmark in it.
    pub last_activity: Instant,
    /// The time for which the watch has been processing one item. Waiting for capacity does not count.
    pub busy_for: Option<Duration>,
}

/// The time after which a watch that processes one item counts as stuck. Processing means to put an event into queues, which takes
/// microseconds.
const STUCK: Duration = Duration::from_secs(60);

impl WatchStatus {
    /// The reason why the watch is stuck through a defect of this process; `None` if it is not.
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
    /// The state of a watch of `kind` that begins now.
    pub(super) fn new(kind: &Kind) -> Self {
        Self {
            kind: kind.clone(),
            store: Mutex::new(ObjectStore::new(kind)),
            liveness: Arc::new(Liveness::new()),
            counts: Mutex::default(),
        }
    }

    /// A snapshot of this state.
    pub(super) fn status(&self, listed: bool, ended: bool) -> WatchStatus {
        let (objects, undecodable) = {
            let store = lock(&self.store);
            (store.len(), store.undecodable().len())
        };
        WatchStatus {
            kind: self.kind.clone(),
            listed,
            objects,
            undecodable,
            ended,
            counts: lock(&self.counts).clone(),
            last_activity: self.liveness.last_activity(),
            busy_for: self.liveness.busy_for(),
        }
    }
}
