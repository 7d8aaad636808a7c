//! Whether the program lives, and whether it is ready.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// What must be well before the program is ready, by name, with the reason why it is not.
pub(crate) struct Health {
    waiting: Mutex<BTreeMap<String, String>>,
    stuck: Mutex<Option<Stuck>>,
    unlisted: Mutex<Option<Unlisted>>,
    ready: watch::Sender<bool>,
}

/// Names what should run and does not.
type Stuck = Box<dyn Fn() -> Vec<String> + Send + Sync>;

/// Names the kinds that are not listed yet, each with the error that keeps it from that.
type Unlisted = Box<dyn Fn() -> Vec<(String, Option<String>)> + Send + Sync>;

impl Default for Health {
    fn default() -> Self {
        Self {
            waiting: Mutex::default(),
            stuck: Mutex::default(),
            unlisted: Mutex::default(),
            ready: watch::Sender::new(false),
        }
    }
}

impl Health {
    /// `name` is not well, for this reason; the program is not ready until it is.
    pub(crate) fn waits(&self, name: impl Into<String>, reason: impl Into<String>) {
        lock(&self.waiting).insert(name.into(), reason.into());
        self.ready.send_replace(false);
    }

    /// `name` is well.
    pub(crate) fn is_well(&self, name: &str) {
        let mut waiting = lock(&self.waiting);
        waiting.remove(name);
        self.ready.send_replace(waiting.is_empty());
    }

    /// Why the program is not ready: a name and a reason each. Empty when it is.
    pub(crate) fn reasons(&self) -> Vec<(String, String)> {
        let waiting = lock(&self.waiting).clone().into_iter();
        let unlisted = lock(&self.unlisted).as_ref().map(|unlisted| unlisted()).unwrap_or_default();
        let watch = |(kind, error): (String, Option<String>)| {
            (format!("watch {kind}"), error.unwrap_or_else(|| "not all objects are listed yet".to_owned()))
        };
        waiting.chain(unlisted.into_iter().map(watch)).collect()
    }

    /// Ends when the program is ready.
    pub(crate) async fn until_ready(&self) {
        let mut ready = self.ready.subscribe();
        ready.wait_for(|ready| *ready).await.expect("the sender lives as long as this");
    }

    /// Liveness asks `stuck` for what should run and does not. An object that fails never has a say in it.
    pub(crate) fn watch_over(&self, stuck: impl Fn() -> Vec<String> + Send + Sync + 'static) {
        *lock(&self.stuck) = Some(Box::new(stuck));
    }

    /// Readiness asks `unlisted` for the kinds that are not listed yet, and why.
    pub(crate) fn explain(
        &self,
        unlisted: impl Fn() -> Vec<(String, Option<String>)> + Send + Sync + 'static,
    ) {
        *lock(&self.unlisted) = Some(Box::new(unlisted));
    }

    /// What should run and does not.
    pub(crate) fn stuck(&self) -> Vec<String> {
        lock(&self.stuck).as_ref().map(|stuck| stuck()).unwrap_or_default()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
