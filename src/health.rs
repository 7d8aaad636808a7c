//! Whether the program lives, and whether it is ready.

use std::collections::BTreeMap;
use std::sync::Mutex;

use tokio::sync::watch;

use crate::lock::lock;

/// What must be well before the program is ready, and what must run for it to live.
pub(crate) struct Health {
    /// By name the reason why it is not well; none when it is.
    conditions: Mutex<BTreeMap<String, Option<String>>>,
    stuck: Mutex<Vec<Stuck>>,
    watches: Mutex<Option<Watches>>,
    ready: watch::Sender<bool>,
}

/// Something that must be well before the program is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    /// What it is: `driver neutron-vif`, `watch Pod`.
    pub(crate) name: String,
    /// Why it is not well; none when it is.
    pub(crate) reason: Option<String>,
}

/// Names what should run and does not, each with what is the matter.
type Stuck = Box<dyn Fn() -> Vec<String> + Send + Sync>;

/// The watches, each a condition.
type Watches = Box<dyn Fn() -> Vec<Condition> + Send + Sync>;

impl Default for Health {
    fn default() -> Self {
        Self {
            conditions: Mutex::default(),
            stuck: Mutex::default(),
            watches: Mutex::default(),
            ready: watch::Sender::new(false),
        }
    }
}

impl Health {
    /// `name` is not well, for this reason; the program is not ready until it is.
    pub(crate) fn waits(&self, name: impl Into<String>, reason: impl Into<String>) {
        let mut conditions = lock(&self.conditions);
        conditions.insert(name.into(), Some(reason.into()));
        self.ready.send_replace(false);
    }

    /// `name` is well.
    pub(crate) fn is_well(&self, name: &str) {
        let mut conditions = lock(&self.conditions);
        conditions.insert(name.to_owned(), None);
        self.ready.send_replace(conditions.values().all(Option::is_none));
    }

    /// Nobody has to know how `name` is any more.
    pub(crate) fn forget(&self, name: &str) {
        let mut conditions = lock(&self.conditions);
        conditions.remove(name);
        self.ready.send_replace(conditions.values().all(Option::is_none));
    }

    /// All that must be well, by name.
    pub(crate) fn conditions(&self) -> Vec<Condition> {
        let told = lock(&self.conditions).clone();
        let told = told.into_iter().map(|(name, reason)| Condition { name, reason });
        let watches = lock(&self.watches).as_ref().map(|watches| watches()).unwrap_or_default();
        told.chain(watches).collect()
    }

    /// Ends when the program is ready.
    pub(crate) async fn until_ready(&self) {
        let mut ready = self.ready.subscribe();
        ready.wait_for(|ready| *ready).await.expect("the sender lives as long as this");
    }

    /// Liveness asks `stuck` too for what should run and does not. An object that fails never has a say in it.
    pub(crate) fn watch_over(&self, stuck: impl Fn() -> Vec<String> + Send + Sync + 'static) {
        lock(&self.stuck).push(Box::new(stuck));
    }

    /// Readiness asks `watches` for the kinds, and why one is not listed yet.
    pub(crate) fn explain(&self, watches: impl Fn() -> Vec<Condition> + Send + Sync + 'static) {
        *lock(&self.watches) = Some(Box::new(watches));
    }

    /// What should run and does not.
    pub(crate) fn stuck(&self) -> Vec<String> {
        lock(&self.stuck).iter().flat_map(|stuck| stuck()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_is_ready_when_all_is_well_and_no_more_when_something_is_not() {
        let health = Health::default();
        health.waits("driver a", "no answer");
        health.waits("driver b", "no answer");
        health.is_well("driver a");
        let condition = |name: &str, reason: Option<&str>| Condition {
            name: name.into(),
            reason: reason.map(Into::into),
        };
        assert_eq!(
            health.conditions(),
            [condition("driver a", None), condition("driver b", Some("no answer"))]
        );
        assert!(!*health.ready.borrow());
        health.is_well("driver b");
        health.until_ready().await;
        health.waits("shutdown", "asked to");
        assert!(!*health.ready.borrow());
    }

    #[test]
    fn what_is_forgotten_is_neither_well_nor_waited_for() {
        let health = Health::default();
        health.waits("driver a", "no answer");
        health.waits("leadership", "the lease was taken");
        health.forget("driver a");
        let names: Vec<_> = health.conditions().into_iter().map(|condition| condition.name).collect();
        assert!(names == ["leadership"] && !*health.ready.borrow());
        health.forget("leadership");
        assert!(health.conditions().is_empty() && *health.ready.borrow());
    }

    #[test]
    fn everyone_who_watches_over_something_is_asked() {
        let health = Health::default();
        assert!(health.stuck().is_empty());
        health.watch_over(|| vec!["one".into()]);
        health.watch_over(Vec::new);
        health.watch_over(|| vec!["other".into()]);
        assert_eq!(health.stuck(), ["one", "other"]);
    }
}
