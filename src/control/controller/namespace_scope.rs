//! The namespaces whose labels match `kubernetes.namespace_labels`.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::Selector;
use parking_lot::Mutex;
use staffetta_handler::{Event, Index};
use tokio::sync::Notify;

use crate::base::config::label_selector;

/// The set of namespaces that match a label selector, updated from their watch. A namespace does not match before it is delivered.
#[derive(Debug)]
pub(super) struct NamespaceScope {
    selector: Selector,
    names: Mutex<NamespaceNames>,
    /// Notified when a namespace with skipped objects begins to match the selector.
    newly_matching: Notify,
}

/// The names of the namespaces that match the selector, or of which objects were skipped.
#[derive(Debug, Default)]
struct NamespaceNames {
    matching: HashSet<String>,
    /// The namespaces that do not match, or that the watch has not delivered, and of which at least one object was skipped.
    skipped: HashSet<String>,
    /// The namespaces that have begun to match after objects of them were skipped, until [`NamespaceScope::newly_matching`] returns them.
    newly_matching: Vec<String>,
}

impl NamespaceScope {
    pub(super) fn new(selector: Selector) -> Self {
        Self { selector, names: Mutex::default(), newly_matching: Notify::new() }
    }

    /// Returns `true` if the labels of a namespace match the selector.
    pub(super) fn matches(&self, namespace: &ObjectMeta) -> bool {
        label_selector::matches(&self.selector, namespace)
    }

    /// Returns `true` if the namespace called `name` matches the selector. Otherwise it is recorded as one with skipped objects, and
    /// [`newly_matching`](Self::newly_matching) returns its name once it matches.
    pub(super) fn admits_objects_of(&self, name: &str) -> bool {
        let mut names = self.names.lock();
        let matches = names.matching.contains(name);
        if !matches && !names.skipped.contains(name) {
            names.skipped.insert(name.to_owned());
        }
        matches
    }

    /// Waits until a namespace with skipped objects begins to match. Returns the names of all such namespaces, each once.
    pub(super) async fn newly_matching(&self) -> Vec<String> {
        loop {
            let newly_matching = std::mem::take(&mut self.names.lock().newly_matching);
            if !newly_matching.is_empty() {
                return newly_matching;
            }
            self.newly_matching.notified().await;
        }
    }
}

impl Index<Namespace> for NamespaceScope {
    fn apply(&self, event: &Event<Namespace>) {
        let mut names = self.names.lock();
        match event {
            Event::Added(namespace) | Event::Modified(namespace) => {
                let name = namespace.metadata.name.as_deref().unwrap_or_default();
                if !self.matches(&namespace.metadata) {
                    names.matching.remove(name);
                } else if names.matching.insert(name.to_owned()) && names.skipped.remove(name) {
                    names.newly_matching.push(name.to_owned());
                    self.newly_matching.notify_one();
                }
            }
            Event::Deleted(tombstone) => {
                let name = tombstone.object_ref().name;
                names.matching.remove(name);
                names.skipped.remove(name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use serde_json::json;
    use staffetta_handler::Tombstone;

    use super::*;

    fn namespace(team: Option<&str>) -> Arc<Namespace> {
        let metadata =
            json!({ "name": "shop", "uid": "u1", "labels": team.map(|team| json!({ "team": team })) });
        Arc::new(serde_json::from_value(json!({ "metadata": metadata })).unwrap())
    }

    fn scope() -> NamespaceScope {
        NamespaceScope::new(Selector::from_iter([("team", "net")]))
    }

    async fn has_newly_matching(scope: &NamespaceScope) -> bool {
        let newly_matching = tokio::time::timeout(Duration::from_secs(1), scope.newly_matching()).await;
        newly_matching.is_ok_and(|names| names == ["shop"])
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_enters_only_if_objects_of_it_were_left_out() {
        let scope = scope();
        scope.apply(&Event::Added(namespace(Some("net"))));
        assert!(scope.admits_objects_of("shop") && !has_newly_matching(&scope).await);
        scope.apply(&Event::Modified(namespace(None)));
        scope.apply(&Event::Modified(namespace(Some("net"))));
        assert!(!has_newly_matching(&scope).await, "nothing happened to its objects meanwhile");
        scope.apply(&Event::Modified(namespace(Some("web"))));
        assert!(!scope.admits_objects_of("shop") && !has_newly_matching(&scope).await);
        scope.apply(&Event::Modified(namespace(Some("net"))));
        scope.apply(&Event::Modified(namespace(Some("net"))));
        assert!(
            scope.admits_objects_of("shop")
                && has_newly_matching(&scope).await
                && !has_newly_matching(&scope).await
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_unknown_namespace_does_not_match_until_it_comes() {
        let scope = scope();
        assert!(!scope.admits_objects_of("shop"));
        scope.apply(&Event::Added(namespace(Some("net"))));
        assert!(scope.admits_objects_of("shop") && has_newly_matching(&scope).await);
        scope.apply(&Event::Deleted(Tombstone::Last(namespace(Some("net")))));
        assert!(!scope.admits_objects_of("shop"));
        scope.apply(&Event::Deleted(Tombstone::Last(namespace(Some("net")))));
        scope.apply(&Event::Added(namespace(Some("net"))));
        assert!(!has_newly_matching(&scope).await, "its objects are gone with it");
    }
}
