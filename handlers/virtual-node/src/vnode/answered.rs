//! The baselines that this process has answered.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use staffetta_driver::ContainerKey;
use tokio::time::Instant;

use crate::lock::lock;

/// The maximum number of bases whose baselines are remembered.
const REMEMBERED: usize = 10_000;

/// The time for which a baseline is remembered. The pods of its containers come within this time.
const KEPT: Duration = Duration::from_secs(600);

/// The images of the containers in the last baseline of each base, by the name of its node. Reports do not contain them.
#[derive(Default)]
pub(super) struct AnsweredBaselines(Mutex<HashMap<Arc<str>, AnsweredBaseline>>);

struct AnsweredBaseline {
    at: Instant,
    images: HashMap<ContainerKey, String>,
}

impl AnsweredBaselines {
    /// Records the answer to a base. It is not remembered if there are too many.
    pub(super) fn record(&self, node: &Arc<str>, images: HashMap<ContainerKey, String>, now: Instant) {
        let mut answered = lock(&self.0);
        if images.is_empty() {
            answered.remove(node);
        } else if answered.len() < REMEMBERED || answered.contains_key(node) {
            answered.insert(Arc::clone(node), AnsweredBaseline { at: now, images });
        }
    }

    /// Returns the image with which a base was to start a container; `None` if this process has not told it.
    pub(super) fn image(&self, node: &str, key: &ContainerKey) -> Option<String> {
        lock(&self.0).get(node)?.images.get(key).cloned()
    }

    /// Forgets old answers.
    pub(super) fn expire(&self, now: Instant) {
        lock(&self.0).retain(|_, answered| now.saturating_duration_since(answered.at) < KEPT);
    }
}
