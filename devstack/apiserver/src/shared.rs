//! State shared by all connections: the cluster behind a lock, and the notification that wakes watchers.

use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::engine::Cluster;

/// The state of one server.
pub(crate) struct Shared {
    cluster: Mutex<Cluster>,
    /// The revision of the last write.
    pub(crate) written: watch::Sender<u64>,
    pub(crate) bookmark_interval: Duration,
}

impl Shared {
    pub(crate) fn new(event_log: usize, bookmark_interval: Duration) -> Self {
        let cluster = Cluster::new(event_log, Timestamp::now());
        Self {
            written: watch::Sender::new(cluster.store.revision()),
            cluster: Mutex::new(cluster),
            bookmark_interval,
        }
    }

    /// Works on the cluster under its lock, then wakes the watchers if something was written.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Cluster) -> T) -> T {
        let mut cluster = self.cluster.lock();
        let result = work(&mut cluster);
        let revision = cluster.store.revision();
        drop(cluster);
        self.written.send_if_modified(|written| {
            let rung = *written < revision;
            *written = revision.max(*written);
            rung
        });
        result
    }
}
