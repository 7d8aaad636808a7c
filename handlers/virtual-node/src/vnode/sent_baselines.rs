//! The baselines (the containers with which a base is to start) that this process has sent to bases.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use staffetta_driver::ContainerKey;
use tokio::time::Instant;

/// The maximum number of bases whose baselines are remembered.
const REMEMBERED: usize = 10_000;

/// The time for which a baseline is remembered. The pods of its containers are expected to be scheduled within this time.
const RETENTION: Duration = Duration::from_secs(600);

/// The images of the containers in the baseline that this process last sent to each base, by the name of its node. They are needed because
/// the reports of a base contain no images.
#[derive(Default)]
pub(super) struct SentBaselines(Mutex<HashMap<Arc<str>, SentBaseline>>);

/// The images of the containers in a baseline that was sent to a base, and the time at which it was sent.
struct SentBaseline {
    at: Instant,
    images: HashMap<ContainerKey, String>,
}

impl SentBaselines {
    /// Records the images of the baseline that was sent to the base of `node`; an empty baseline removes the record. If
    /// [`REMEMBERED`] bases are recorded, a further one is ignored.
    pub(super) fn record(&self, node: &Arc<str>, images: HashMap<ContainerKey, String>, now: Instant) {
        let mut sent = self.0.lock();
        if images.is_empty() {
            sent.remove(node);
        } else if sent.len() < REMEMBERED || sent.contains_key(node) {
            sent.insert(Arc::clone(node), SentBaseline { at: now, images });
        }
    }

    /// Returns the image of a container in the recorded baseline of a base; `None` if no baseline is recorded, or if it does not contain
    /// the container. [`expire`](Self::expire) removes old records.
    pub(super) fn image(&self, node: &str, key: &ContainerKey) -> Option<String> {
        self.0.lock().get(node)?.images.get(key).cloned()
    }

    /// Forgets the baselines that were sent longer than [`RETENTION`] ago.
    pub(super) fn expire(&self, now: Instant) {
        self.0.lock().retain(|_, sent| now.saturating_duration_since(sent.at) < RETENTION);
    }
}
