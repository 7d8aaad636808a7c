//! A watch, which reads the log forward from a revision and applies a selector. No I/O.

use std::sync::Arc;

use serde_json::Value;

use crate::engine::too_old;
use crate::object::{Object, meta_mut};
use crate::selector::Selector;
use crate::status::Status;
use crate::store::Store;

/// A watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Happened {
    /// The object came, or came to be selected.
    Added,
    /// The object changed and was selected before and after.
    Modified,
    /// The object went, or is not selected any more.
    Deleted,
}

impl Happened {
    /// The `type` of the event on the wire.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// The place of one watcher in the log.
pub(crate) struct Watcher {
    resource: Arc<str>,
    namespace: Option<String>,
    selector: Selector,
    seen: u64,
}

impl Watcher {
    /// A watcher of what happens after the revision `seen`.
    pub(crate) fn new(resource: Arc<str>, namespace: Option<String>, selector: Selector, seen: u64) -> Self {
        Self { resource, namespace, selector, seen }
    }

    /// The revision up to which everything was handed out.
    pub(crate) fn seen(&self) -> u64 {
        self.seen
    }

    /// The events since the last call; 410 if the log no longer reaches back that far.
    pub(crate) fn next(&mut self, store: &Store) -> Result<Vec<(Happened, Object)>, Status> {
        let events = store.events_after(self.seen).map_err(|expired| too_old(self.seen, expired.oldest))?;
        let mut happened = Vec::new();
        for event in events {
            let elsewhere =
                self.namespace.as_ref().is_some_and(|namespace| *namespace != event.key.namespace);
            if event.resource != self.resource || elsewhere {
                continue;
            }
            let selected = |object: &&Object| self.selector.matches(object);
            match (event.before.as_ref().filter(selected), event.after.as_ref().filter(selected)) {
                (None, Some(after)) => happened.push((Happened::Added, Arc::clone(after))),
                (Some(_), Some(after)) => happened.push((Happened::Modified, Arc::clone(after))),
                (Some(before), None) => {
                    happened.push((Happened::Deleted, at_its_end(before, event.revision)));
                }
                (None, None) => {}
            }
        }
        self.seen = self.seen.max(store.revision());
        Ok(happened)
    }
}

/// The object as it last was seen, under the revision at which it went.
fn at_its_end(before: &Object, revision: u64) -> Object {
    let mut object = Value::clone(before);
    meta_mut(&mut object).insert("resourceVersion".into(), revision.to_string().into());
    Arc::new(object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Key, revision};
    use crate::table::builtin;
    use serde_json::json;

    fn put(store: &mut Store, name: &str, app: &str) {
        let object = json!({"metadata": {"namespace": "default", "name": name, "labels": {"app": app}}});
        store.put(&"pods".into(), Key::new("default", name), object);
    }

    fn watcher(selector: &str, seen: u64) -> Watcher {
        let selector = Selector::parse(&builtin("", "pods"), selector, "").unwrap();
        Watcher::new("pods".into(), Some("default".into()), selector, seen)
    }

    fn kinds(happened: &[(Happened, Object)]) -> Vec<Happened> {
        happened.iter().map(|(kind, _)| *kind).collect()
    }

    #[test]
    fn a_watch_goes_on_where_it_stopped() {
        let mut store = Store::new(10);
        put(&mut store, "a", "web");
        let mut watcher = watcher("", 0);
        assert_eq!(kinds(&watcher.next(&store).unwrap()), [Happened::Added]);
        assert!(watcher.next(&store).unwrap().is_empty());
        put(&mut store, "a", "db");
        assert_eq!(kinds(&watcher.next(&store).unwrap()), [Happened::Modified]);
    }

    #[test]
    fn what_enters_the_selection_is_added_and_what_leaves_it_is_deleted() {
        let mut store = Store::new(10);
        let mut watcher = watcher("app=web", 0);
        for app in ["db", "web", "web", "db"] {
            put(&mut store, "a", app);
        }
        let happened = watcher.next(&store).unwrap();
        assert_eq!(kinds(&happened), [Happened::Added, Happened::Modified, Happened::Deleted]);
        let last = &happened[2].1;
        assert_eq!((revision(last), last["metadata"]["labels"]["app"].as_str()), (4, Some("web")));
    }

    #[test]
    fn a_removed_object_carries_the_revision_of_its_end() {
        let mut store = Store::new(10);
        put(&mut store, "a", "web");
        store.remove(&"pods".into(), &Key::new("default", "a"));
        let happened = watcher("", 1).next(&store).unwrap();
        assert_eq!((happened[0].0, revision(&happened[0].1)), (Happened::Deleted, 2));
    }

    #[test]
    fn a_watch_from_before_the_log_has_expired() {
        let mut store = Store::new(1);
        put(&mut store, "a", "web");
        put(&mut store, "a", "web");
        assert_eq!(watcher("", 0).next(&store).unwrap_err().code(), 410);
    }

    #[test]
    fn a_watch_from_the_future_waits_for_it() {
        let mut store = Store::new(10);
        let mut watcher = watcher("", 1);
        put(&mut store, "a", "web");
        assert!(watcher.next(&store).unwrap().is_empty());
        assert_eq!(watcher.seen(), 1);
    }
}
