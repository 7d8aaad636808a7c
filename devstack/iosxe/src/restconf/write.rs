//! Changes of the configuration: POST, PUT, PATCH and DELETE.

use std::time::Instant;

use serde_json::{Map, Value};

use super::answer::{Answer, Problem};
use super::asked::Asked;
use crate::data::{Change, Place, change, insert, replace};
use crate::machine::{InUse, Machine};
use crate::options::Gone;
use crate::schema::app_hosting_cfg::{MODULE, ROOT};
use crate::schema::{Node, check, child};

/// The answer to a request that changes the configuration. The whole is valid after it, or stays as it was.
pub(super) fn answer(
    machine: &mut Machine,
    asked: &Asked<'_>,
    place: &Place,
    now: Instant,
) -> Result<Answer, Problem> {
    let mut config = machine.read(|config, _, _| config.clone());
    let answer = match asked.method {
        "POST" => post(&mut config, asked, place)?,
        "PUT" => {
            let value = named_like(place, asked)?;
            // What is not an entry of the list that it is put in would be changed under another name.
            match replace(&mut config, place, value) {
                Change::Made => Answer::code(201),
                Change::Missing => return Err(Problem::not_found(asked.path)),
                _ => Answer::code(204),
            }
        }
        "PATCH" => {
            let value = named_like(place, asked)?;
            let mut missing = false;
            change(&mut config, place, |before| {
                missing = before.is_none() && !place.steps.is_empty();
                let mut merged = before.cloned().unwrap_or_else(|| Value::Object(Map::new()));
                merge(place.node, &mut merged, value);
                if missing { None } else { Some(merged) }
            });
            if missing {
                return Err(Problem::not_found(asked.path));
            }
            Answer::code(204)
        }
        "DELETE" => match change(&mut config, place, |_| None) {
            Change::Missing => {
                return Err(match machine.iox.options.style.gone {
                    Gone::NotFound => Problem::not_found(asked.path),
                    Gone::DataMissing => Problem::new(409, "data-missing", "the data do not exist".into()),
                });
            }
            _ => Answer::code(204),
        },
        _ => return Err(Problem::method()),
    };
    check(&ROOT, &config, "")?;
    machine.commit(config, now).map_err(|InUse(why)| Problem::new(409, "in-use", why))?;
    Ok(answer)
}

/// A child of what stands at `place`: RFC 8040, section 4.4.1.
fn post(config: &mut Value, asked: &Asked<'_>, place: &Place) -> Result<Answer, Problem> {
    let whole_list = matches!(place.node, Node::List { .. }) && !place.is_entry();
    let (Node::Container(fields) | Node::List { fields, .. }) = place.node else {
        return Err(Problem::method());
    };
    if whole_list {
        return Err(Problem::method());
    }
    let (name, value) = member(asked)?;
    let unknown = || Problem::new(400, "unknown-element", format!("unknown element {name}"));
    let node = child(fields, &name).ok_or_else(unknown)?;
    let (value, key) = match node {
        Node::List { keys, .. } => {
            let entry = entry(value)?;
            check(node, &Value::Array(vec![entry.clone()]), &format!("/{name}"))?;
            let keys: Vec<_> = keys.iter().map(|key| text(&entry[*key])).collect();
            (entry, format!("={}", keys.join(",")))
        }
        node => {
            check(node, &value, &format!("/{name}"))?;
            (value, String::new())
        }
    };
    match insert(config, place, &name, node, value) {
        Change::Exists => Err(Problem::new(409, "data-exists", "object already exists".into())),
        Change::Missing => Err(Problem::not_found(asked.path)),
        _ => Ok(Answer { location: Some(format!("{}/{name}{key}", asked.path)), ..Answer::code(201) }),
    }
}

/// The value of a PUT or a PATCH: it bears the name, and as an entry the key, of the target.
fn named_like(place: &Place, asked: &Asked<'_>) -> Result<Value, Problem> {
    let (name, value) = member(asked)?;
    let target = place.steps.last().map_or("app-hosting-cfg-data", |step| &step.name);
    if name != target {
        return Err(Problem::malformed(&format!("the body is {name}, and the target {target}")));
    }
    let Some(keys) = place.steps.last().and_then(|step| step.keys.as_ref()) else { return Ok(value) };
    let value = entry(value)?;
    if keys.iter().any(|(key, wanted)| text(&value[*key]) != *wanted) {
        return Err(Problem::new(
            400,
            "invalid-value",
            "the key of the body is not that of the target".into(),
        ));
    }
    Ok(value)
}

/// The one member of the body, out of its module, which is named there.
fn member(asked: &Asked<'_>) -> Result<(String, Value), Problem> {
    let body = asked.json()?;
    let members = match body {
        Value::Object(members) if members.len() == 1 => members,
        _ => return Err(Problem::malformed("the body is an object with one member")),
    };
    let (name, value) = members.into_iter().next().ok_or_else(|| Problem::malformed("the body is empty"))?;
    let Some(name) = name.strip_prefix(MODULE).and_then(|rest| rest.strip_prefix(':')) else {
        return Err(Problem::malformed("the member of the body must name its module"));
    };
    Ok((name.to_owned(), plain(value)))
}

/// Without the names of the module, which may stand anywhere.
fn plain(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let members = members.into_iter().map(|(name, value)| {
                let plain_name = name.strip_prefix(MODULE).and_then(|rest| rest.strip_prefix(':'));
                (plain_name.unwrap_or(&name).to_owned(), plain(value))
            });
            Value::Object(members.collect())
        }
        Value::Array(entries) => entries.into_iter().map(plain).collect(),
        other => other,
    }
}

/// The one entry that a body for a list is: an array of one, or the entry itself.
fn entry(value: Value) -> Result<Value, Problem> {
    let only = match value {
        Value::Array(mut entries) if entries.len() == 1 => entries.remove(0),
        Value::Object(_) => value,
        _ => return Err(Problem::malformed("the body holds one entry of the list")),
    };
    if only.is_object() { Ok(only) } else { Err(Problem::malformed("an entry is an object")) }
}

/// A plain patch: RFC 8040, section 4.6.1.
fn merge(node: &Node, into: &mut Value, from: Value) {
    match (node, from) {
        (Node::Container(fields) | Node::List { fields, .. }, Value::Object(from)) if into.is_object() => {
            for (name, value) in from {
                match (child(fields, &name), into.get_mut(&name)) {
                    (Some(node), Some(existing)) => merge(node, existing, value),
                    _ => into[name] = value,
                }
            }
        }
        (Node::List { keys, .. }, Value::Array(from)) if into.is_array() => {
            let Value::Array(entries) = into else { return };
            for value in from {
                let same = |entry: &&mut Value| keys.iter().all(|key| entry.get(key) == value.get(key));
                match entries.iter_mut().find(same) {
                    Some(entry) => merge(node, entry, value),
                    None => entries.push(value),
                }
            }
        }
        (_, from) => *into = from,
    }
}

/// A key as it stands in a path.
fn text(key: &Value) -> String {
    key.as_str().map_or_else(|| key.to_string(), str::to_owned)
}
