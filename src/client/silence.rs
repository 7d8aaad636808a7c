//! For how long the API server has said nothing in a watch.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

/// When the API server last said anything in the watch of each path to which somebody listens: that the watch begins, an event,
/// or a bookmark, by which a server shows in quiet times that it is still there.
#[derive(Default)]
pub(crate) struct Silence {
    ears: Mutex<HashMap<String, Arc<Ear>>>,
}

/// When something was last heard on one path.
pub(crate) struct Ear(Mutex<Instant>);

impl Ear {
    /// Something was heard.
    pub(crate) fn hear(&self) {
        *lock(&self.0) = Instant::now();
    }
}

impl Silence {
    /// Listens on `path` from now on; what was heard there before is forgotten.
    pub(crate) fn listen(&self, path: &str) {
        lock(&self.ears).insert(path.to_owned(), Arc::new(Ear(Mutex::new(Instant::now()))));
    }

    /// Who must be told of what is heard on `path`.
    pub(crate) fn ear(&self, path: &str) -> Option<Arc<Ear>> {
        lock(&self.ears).get(path).cloned()
    }

    /// When something was last heard on `path`, or listening began. None where nobody listens.
    pub(crate) fn last_heard(&self, path: &str) -> Option<Instant> {
        self.ear(path).map(|ear| *lock(&ear.0))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
