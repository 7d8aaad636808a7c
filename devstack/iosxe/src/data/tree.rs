//! Reads and changes a tree at a path. Lists are arrays, as in JSON; an empty container is equivalent to none (RFC 7950, section
//! 7.5.1).

use serde_json::{Map, Value};

use super::path::{Place, Step};
use crate::schema::Node;

/// The result of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// There was nothing before.
    Made,
    /// There was something before.
    Changed,
    /// There was something, and there must not be.
    Exists,
    /// There was nothing, and there must be.
    Missing,
}

/// Returns the data at `place`; `None` where the container or list is empty.
pub(crate) fn get<'a>(data: &'a Value, place: &Place) -> Option<&'a Value> {
    let here = place.steps.iter().try_fold(data, |here, step| {
        let here = here.get(&step.name)?;
        match &step.keys {
            Some(keys) => here.as_array()?.iter().find(|entry| has_keys(entry, keys)),
            None => Some(here),
        }
    })?;
    let empty = match here {
        Value::Object(members) => members.is_empty(),
        Value::Array(entries) => entries.is_empty(),
        _ => false,
    };
    (!empty).then_some(here)
}

/// Adds `value` as the child `name` of the container or entry at `place`; an entry, where the child is a list.
pub(crate) fn insert(data: &mut Value, place: &Place, name: &str, child: &Node, value: Value) -> Change {
    let Some(parent) = make(data, &place.steps) else { return Change::Missing };
    let Value::Object(members) = parent else { return Change::Missing };
    let Node::List { keys, .. } = child else {
        if members.get(name).is_some_and(|value| *value != Value::Object(Map::new())) {
            return Change::Exists;
        }
        members.insert(name.to_owned(), value);
        return Change::Made;
    };
    let Value::Array(entries) = members.entry(name).or_insert_with(|| Value::Array(Vec::new())) else {
        return Change::Missing;
    };
    if entries.iter().any(|entry| keys.iter().all(|key| entry.get(key) == value.get(key))) {
        return Change::Exists;
    }
    entries.push(value);
    Change::Made
}

/// Puts `value` at `place`, whatever stands there.
pub(crate) fn replace(data: &mut Value, place: &Place, value: Value) -> Change {
    change(data, place, |_| Some(value))
}

/// Makes what stands at `place` what `with` says of it; nothing, where that is None.
pub(crate) fn change(
    data: &mut Value,
    place: &Place,
    with: impl FnOnce(Option<&Value>) -> Option<Value>,
) -> Change {
    let before = get(data, place).cloned();
    let found = if before.is_some() { Change::Changed } else { Change::Missing };
    let after = with(before.as_ref());
    let Some((last, above)) = place.steps.split_last() else {
        *data = after.unwrap_or_else(|| Value::Object(Map::new()));
        return Change::Changed;
    };
    if after.is_none() && before.is_none() {
        return Change::Missing;
    }
    let Some(Value::Object(members)) = make(data, above) else { return Change::Missing };
    match (&last.keys, after) {
        (None, Some(value)) => drop(members.insert(last.name.clone(), value)),
        (None, None) => drop(members.remove(&last.name)),
        (Some(keys), after) => {
            let list = members.entry(last.name.clone()).or_insert_with(|| Value::Array(Vec::new()));
            let Value::Array(entries) = list else { return Change::Missing };
            let at = entries.iter().position(|entry| has_keys(entry, keys));
            match (at, after) {
                (Some(at), Some(value)) => entries[at] = value,
                (Some(at), None) => drop(entries.remove(at)),
                (None, Some(value)) => entries.push(value),
                (None, None) => {}
            }
        }
    }
    if found == Change::Missing { Change::Made } else { found }
}

/// The node at the end of these steps, with the containers on the way to it. None, where an entry of a list is missing.
fn make<'a>(data: &'a mut Value, steps: &[Step]) -> Option<&'a mut Value> {
    steps.iter().try_fold(data, |here, step| {
        let Value::Object(members) = here else { return None };
        match &step.keys {
            None => Some(members.entry(step.name.clone()).or_insert_with(|| Value::Object(Map::new()))),
            Some(keys) => {
                let Some(Value::Array(entries)) = members.get_mut(&step.name) else { return None };
                entries.iter_mut().find(|entry| has_keys(entry, keys))
            }
        }
    })
}

/// Returns `true` if the entry's key has these values.
fn has_keys(entry: &Value, keys: &[(&'static str, String)]) -> bool {
    keys.iter().all(|(name, value)| match entry.get(name) {
        Some(Value::String(text)) => text == value,
        Some(Value::Number(number)) => number.as_u64().is_some_and(|number| value.parse() == Ok(number)),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::app_hosting_cfg::{MODULE, ROOT};
    use crate::schema::{Node, child};

    fn place(path: &str) -> Place {
        Place::find(&ROOT, MODULE, path.split('/').filter(|segment| !segment.is_empty())).unwrap()
    }

    fn list() -> &'static Node {
        let Node::Container(fields) = place("apps").node else { unreachable!("it is a container") };
        child(fields, "app").unwrap()
    }

    #[test]
    fn an_entry_is_added_once_read_by_its_key_and_removed_once() {
        let mut data = json!({});
        let app = json!({ "application-name": "a", "run-optss": { "run-opts": [{ "line-index": 2 }] } });
        let mut add = |value: &Value| insert(&mut data, &place("apps"), "app", list(), value.clone());
        assert_eq!(add(&app), Change::Made);
        assert_eq!(add(&json!({ "application-name": "a" })), Change::Exists);
        assert_eq!(add(&json!({ "application-name": "b" })), Change::Made);
        assert_eq!(get(&data, &place("apps/app=a")), Some(&app));
        assert_eq!(
            get(&data, &place("apps/app=a/run-optss/run-opts=2")),
            Some(&json!({ "line-index": 2 })),
            "a key may be a number"
        );
        assert_eq!(change(&mut data, &place("apps/app=a"), |_| None), Change::Changed);
        assert_eq!(change(&mut data, &place("apps/app=a"), |_| None), Change::Missing);
        assert_eq!(get(&data, &place("apps/app")), Some(&json!([{ "application-name": "b" }])));
    }

    #[test]
    fn what_is_empty_is_not_there() {
        let mut data = json!({});
        insert(&mut data, &place("apps"), "app", list(), json!({ "application-name": "a" }));
        change(&mut data, &place("apps/app=a"), |_| None);
        assert_eq!(get(&data, &place("apps/app")), None);
        assert_eq!(get(&json!({}), &place("")), None);
    }

    #[test]
    fn a_replacement_makes_the_way_to_it_but_no_entry_above_it() {
        let mut data = json!({});
        assert_eq!(replace(&mut data, &place("apps/app=a/start"), json!(true)), Change::Missing);
        assert_eq!(
            replace(&mut data, &place("apps/app=a"), json!({ "application-name": "a" })),
            Change::Made
        );
        assert_eq!(replace(&mut data, &place("apps/app=a/start"), json!(true)), Change::Made);
        assert_eq!(replace(&mut data, &place("apps/app=a/start"), json!(false)), Change::Changed);
        assert_eq!(data, json!({ "apps": { "app": [{ "application-name": "a", "start": false }] } }));
    }
}
