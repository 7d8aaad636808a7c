//! Readiness of the process: named conditions that must all be met.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// The conditions that must all be met before the process is ready. All watches of the leader's handlers together have one condition here,
/// and so have those of the handlers in every replica. The condition of a single watch is not stored, but derived from its status.
#[derive(Default)]
pub(crate) struct Health {
    /// The reason why each condition is not met, by name; `None` if the condition is met.
    conditions: watch::Sender<BTreeMap<String, Option<String>>>,
}

/// A condition of readiness, as `/readyz` and `/debug/state` show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Condition {
    /// The name, such as `driver neutron-vif` or `watch Pod`.
    pub(crate) name: String,
    /// The reason why the condition is not met; `None` if it is met.
    pub(crate) reason: Option<String>,
}

impl Health {
    /// Marks the condition `name` as not met, for `reason`.
    pub(crate) fn set_unmet(&self, name: impl Into<String>, reason: impl Into<String>) {
        let (name, reason) = (name.into(), Some(reason.into()));
        self.conditions.send_modify(|conditions| drop(conditions.insert(name, reason)));
    }

    /// Marks the condition `name` as met.
    pub(crate) fn set_met(&self, name: &str) {
        self.conditions.send_modify(|conditions| drop(conditions.insert(name.to_owned(), None)));
    }

    /// Removes the conditions with these names.
    pub(crate) fn remove(&self, names: &[String]) {
        self.conditions.send_modify(|conditions| conditions.retain(|name, _| !names.contains(name)));
    }

    /// Returns all conditions, ordered by name.
    pub(crate) fn conditions(&self) -> Vec<Condition> {
        let conditions = self.conditions.borrow().clone().into_iter();
        conditions.map(|(name, reason)| Condition { name, reason }).collect()
    }

    /// Waits until all conditions are met. By then, all running watches have listed their objects.
    pub(crate) async fn until_ready(&self) {
        let mut conditions = self.conditions.subscribe();
        let met = conditions.wait_for(|conditions| conditions.values().all(Option::is_none)).await;
        met.expect("the sender lives as long as `self`");
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn the_process_is_ready_while_every_condition_is_met() {
        let health = Health::default();
        health.set_unmet("driver a", "no answer");
        health.set_unmet("driver b", "no answer");
        health.set_met("driver a");
        let condition = |name: &str, reason: Option<&str>| Condition {
            name: name.into(),
            reason: reason.map(Into::into),
        };
        assert_eq!(
            health.conditions(),
            [condition("driver a", None), condition("driver b", Some("no answer"))]
        );
        health.set_met("driver b");
        health.until_ready().await;
        health.set_unmet("shutdown", "asked to");
        assert!(health.until_ready().now_or_never().is_none());
    }

    #[test]
    fn a_removed_condition_is_neither_met_nor_unmet() {
        let health = Health::default();
        health.set_unmet("driver a", "no answer");
        health.set_unmet("leadership", "the lease was taken");
        health.remove(&["driver a".to_owned(), "driver b".to_owned()]);
        let names: Vec<_> = health.conditions().into_iter().map(|condition| condition.name).collect();
        assert_eq!(names, ["leadership"]);
        health.remove(&["leadership".to_owned()]);
        assert_eq!(health.conditions(), []);
    }
}
