//! For how long the API server has said nothing in a watch, where in its history that watch is, and whether it ends at once.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::lock::lock;

/// When the API server last said anything in the watch of each path to which somebody listens: that the watch begins, an event,
/// or a bookmark, by which a server shows in quiet times that it is still there.
#[derive(Default)]
pub(crate) struct Silence {
    ears: Mutex<HashMap<String, Arc<Ear>>>,
}

/// When something was last heard on one path, and when and from where in the history it was asked for.
pub(crate) struct Ear {
    heard: Mutex<Instant>,
    reached: AtomicU64,
    begun: Mutex<Option<Instant>>,
}

/// So long after a watch began the next one may begin. Less than the shortest watch (1 s) and the shortest wait after an error
/// (0.75 s) last: nothing but a watch that ended at once is followed by another one so soon.
const SOON: Duration = Duration::from_millis(500);

/// A watch ended as soon as it had begun, and not by an error: the server, or a proxy before it, cuts it off. Whoever asks for the
/// next one at once is told so, and waits as after any error.
#[derive(Debug, thiserror::Error)]
#[error("the watch ended at once, and without a word")]
pub(crate) struct EndedAtOnce;

impl Ear {
    /// A watch is to begin now.
    pub(crate) fn begins(&self) -> Result<(), EndedAtOnce> {
        let (mut begun, now) = (lock(&self.begun), Instant::now());
        if begun.is_some_and(|begun| now.duration_since(begun) < SOON) {
            return Err(EndedAtOnce);
        }
        *begun = Some(now);
        Ok(())
    }

    /// Something was heard.
    pub(crate) fn hear(&self) {
        *lock(&self.heard) = Instant::now();
    }

    /// A watch goes on from this resourceVersion: so far a list, an object or a bookmark has taken it.
    pub(crate) fn goes_on_from(&self, version: u64) {
        self.reached.store(version, Ordering::Relaxed);
    }
}

impl Silence {
    /// Listens on `path` from now on; what was heard there before is forgotten.
    pub(crate) fn listen(&self, path: &str) {
        let (heard, begun) = (Mutex::new(Instant::now()), Mutex::default());
        let ear = Ear { heard, reached: AtomicU64::new(0), begun };
        lock(&self.ears).insert(path.to_owned(), Arc::new(ear));
    }

    /// Who must be told of what is heard on `path`.
    pub(crate) fn ear(&self, path: &str) -> Option<Arc<Ear>> {
        lock(&self.ears).get(path).cloned()
    }

    /// When something was last heard on `path`, or listening began. None where nobody listens.
    pub(crate) fn last_heard(&self, path: &str) -> Option<Instant> {
        self.ear(path).map(|ear| *lock(&ear.heard))
    }

    /// The resourceVersion from which the watch of `path` went on last; 0 where that is not known.
    pub(crate) fn reached(&self, path: &str) -> u64 {
        self.ear(path).map_or(0, |ear| ear.reached.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_listens_anew_has_heard_nothing_of_the_time_before() {
        let silence = Silence::default();
        silence.listen("/pods");
        tokio::time::advance(Duration::from_secs(3600)).await;
        silence.listen("/pods");
        assert_eq!(silence.last_heard("/pods").map(|heard| heard.elapsed()), Some(Duration::ZERO));
    }
}
