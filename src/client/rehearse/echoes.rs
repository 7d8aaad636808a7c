//! What writes that were not made would have changed, and whom it is still to be told.

use std::collections::HashMap;
use std::sync::Mutex;

use serde_json::Value;

use super::difference::Difference;
use crate::lock::lock;

/// What the writes of a dry run would have changed: the server, which made none of them, cannot tell.
#[derive(Default)]
pub(crate) struct Echoes(Mutex<State>);

#[derive(Default)]
struct State {
    /// By UID, in order.
    changes: HashMap<String, Vec<Difference>>,
    told: Vec<Echo>,
}

/// What a watch would tell.
#[derive(Debug, PartialEq)]
pub(crate) enum Echo {
    /// The object would be this by now.
    Is(Value),
    /// The object with this UID would be gone.
    Gone(String),
}

impl Echoes {
    /// Adds what a write would change in `object`, and tells of it. Answers the object as it would be after all writes.
    pub(super) fn written(&self, object: Value, changes: Vec<Difference>) -> Value {
        self.with(|state| {
            state.changes.entry(uid(&object)).or_default().extend(changes);
            state.tell(object)
        })
    }

    /// Somebody else has changed `object`: it is told as it would be by now.
    pub(super) fn changed(&self, object: Value) {
        self.with(|state| state.tell(object));
    }

    /// The object with this UID would be gone.
    pub(super) fn gone(&self, uid: &str) {
        self.with(|state| state.told.push(Echo::Gone(uid.to_owned())));
    }

    /// The object as it would be after all writes so far.
    pub(super) fn by_now(&self, object: Value) -> Value {
        self.with(|state| state.by_now(object))
    }

    /// What was not told yet.
    pub(crate) fn take(&self) -> Vec<Echo> {
        self.with(|state| std::mem::take(&mut state.told))
    }

    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut lock(&self.0))
    }
}

impl State {
    fn tell(&mut self, object: Value) -> Value {
        let object = self.by_now(object);
        self.told.push(Echo::Is(object.clone()));
        object
    }

    fn by_now(&self, mut object: Value) -> Value {
        for change in self.changes.get(&uid(&object)).into_iter().flatten() {
            change.apply(&mut object);
        }
        object
    }
}

fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::difference::differences;
    use super::*;

    fn object(uid: &str, annotations: &Value) -> Value {
        json!({ "metadata": { "uid": uid, "annotations": annotations } })
    }

    #[test]
    fn a_later_write_stands_on_the_earlier_ones_of_the_same_object() {
        let echoes = Echoes::default();
        let server = object("u1", &json!({ "theirs": "1" }));
        for key in ["first", "second"] {
            let mut after = server.clone();
            after["metadata"]["annotations"][key] = json!("ours");
            let changes = differences(&server, &after);
            echoes.written(after, changes);
        }
        let (first, second) = (
            json!({ "theirs": "1", "first": "ours" }),
            json!({ "theirs": "1", "first": "ours", "second": "ours" }),
        );
        assert_eq!(echoes.take(), [Echo::Is(object("u1", &first)), Echo::Is(object("u1", &second))]);
        assert_eq!(echoes.take(), []);
        assert_eq!(echoes.by_now(server), object("u1", &second));
        let other = object("u2", &json!({}));
        assert_eq!(echoes.by_now(other.clone()), other);
    }

    #[test]
    fn what_somebody_else_changed_is_told_with_our_writes_on_top() {
        let echoes = Echoes::default();
        let (before, after) = (object("u1", &json!({})), object("u1", &json!({ "k": "ours" })));
        echoes.written(after.clone(), differences(&before, &after));
        echoes.changed(object("u1", &json!({ "theirs": "new" })));
        echoes.gone("u1");
        let both = object("u1", &json!({ "theirs": "new", "k": "ours" }));
        assert_eq!(echoes.take(), [Echo::Is(after), Echo::Is(both), Echo::Gone("u1".into())]);
    }
}
