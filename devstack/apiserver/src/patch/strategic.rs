//! Strategic merge patch: a merge patch that merges lists by key and obeys directives.

use std::fmt;

use serde_json::{Map, Value};

use super::lists::{List, rule};

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ELEMENT_ORDER: &str = "$setElementOrder/";

/// A patch that cannot be applied to any object.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Error {
    /// `$patch` names something else than replace, merge or delete.
    UnknownDirective { path: String, directive: String },
    /// An element of a keyed list lacks its key.
    NoMergeKey { path: String, key: &'static str },
    /// A directive or list is not of the type it must be.
    WrongType { path: String, wanted: &'static str },
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownDirective { path, directive } => {
                write!(
                    out,
                    "unrecognized $patch directive {directive} at {path:?}; known are replace, merge, delete"
                )
            }
            Self::NoMergeKey { path, key } => {
                write!(out, "map at {path:?} does not contain declared merge key: {key}")
            }
            Self::WrongType { path, wanted } => write!(out, "{path:?} must be {wanted}"),
        }
    }
}

/// Merges `patch` into an object of this kind.
pub(super) fn merge(kind: &str, object: &Value, patch: &Value) -> Result<Value, Error> {
    Merge { kind }.value(object, patch, "")
}

struct Merge<'a> {
    kind: &'a str,
}

impl Merge<'_> {
    fn value(&self, original: &Value, patch: &Value, path: &str) -> Result<Value, Error> {
        let empty = Map::new();
        match patch {
            Value::Object(patch) => {
                self.map(original.as_object().unwrap_or(&empty), patch, path).map(Value::Object)
            }
            Value::Array(patch) => {
                let original = original.as_array().map_or(&[][..], Vec::as_slice);
                self.list(original, patch, None, path).map(Value::Array)
            }
            other => Ok(other.clone()),
        }
    }

    fn map(
        &self,
        original: &Map<String, Value>,
        patch: &Map<String, Value>,
        path: &str,
    ) -> Result<Map<String, Value>, Error> {
        let mut merged = match directive(patch, path)? {
            Directive::Merge => original.clone(),
            Directive::Replace => return Ok(without_directives(patch)),
            Directive::Delete => return Ok(Map::new()),
        };
        if let Some(keep) = patch.get(RETAIN_KEYS) {
            let keep = array(keep, RETAIN_KEYS)?;
            merged.retain(|field, _| keep.iter().any(|kept| kept == field));
        }
        for (field, change) in patch {
            let at = join(path, field.rsplit('/').next().unwrap_or(field));
            if let Some(list) = field.strip_prefix(DELETE_FROM) {
                let gone = array(change, &at)?;
                if let Some(Value::Array(items)) = merged.get_mut(list) {
                    items.retain(|item| !gone.contains(item));
                }
            } else if let Some(list) = field.strip_prefix(ELEMENT_ORDER) {
                if !patch.contains_key(list)
                    && let Some(Value::Array(items)) = merged.get(list)
                {
                    let ordered = self.list(items, &[], Some(array(change, &at)?), &at)?;
                    merged.insert(list.into(), ordered.into());
                }
            } else if !field.starts_with('$') {
                self.field(&mut merged, patch, field, &join(path, field))?;
            }
        }
        // A list that was emptied is a list that is gone, as the typed server would write it.
        merged.retain(|field, value| {
            !(patch.contains_key(&format!("{DELETE_FROM}{field}"))
                && value.as_array().is_some_and(Vec::is_empty))
        });
        Ok(merged)
    }

    fn field(
        &self,
        merged: &mut Map<String, Value>,
        patch: &Map<String, Value>,
        field: &str,
        path: &str,
    ) -> Result<(), Error> {
        let change = &patch[field];
        if change.is_null() {
            merged.remove(field);
            return Ok(());
        }
        let order =
            patch.get(&format!("{ELEMENT_ORDER}{field}")).map(|order| array(order, path)).transpose()?;
        let original = merged.get(field).unwrap_or(&Value::Null);
        let value = match (change, order) {
            (Value::Array(change), Some(order)) => {
                let original = original.as_array().map_or(&[][..], Vec::as_slice);
                Value::Array(self.list(original, change, Some(order), path)?)
            }
            _ => self.value(original, change, path)?,
        };
        let deleted = change.get(PATCH).is_some_and(|directive| directive == "delete");
        if deleted {
            merged.remove(field);
        } else {
            merged.insert(field.into(), value);
        }
        Ok(())
    }

    fn list(
        &self,
        original: &[Value],
        patch: &[Value],
        order: Option<&[Value]>,
        path: &str,
    ) -> Result<Vec<Value>, Error> {
        let rule = rule(self.kind, path);
        let same: Box<Same> = match rule {
            List::Atomic => return Ok(patch.iter().map(clean).collect()),
            List::Set => Box::new(|a, b| a == b),
            List::Keyed(key) => Box::new(move |a, b| a[key] == b[key]),
        };
        let mut merged: Vec<Value> = Vec::with_capacity(original.len() + patch.len());
        let replaced = patch.iter().any(|item| item[PATCH] == "replace");
        if !replaced {
            merged.extend_from_slice(original);
        }
        for change in patch {
            if let List::Keyed(key) = rule {
                let change = change.as_object().ok_or_else(|| wrong_type(path, "a list of objects"))?;
                let directive = directive(change, path)?;
                if directive == Directive::Replace && !change.contains_key(key) {
                    continue;
                }
                if !change.contains_key(key) {
                    return Err(Error::NoMergeKey { path: path.into(), key });
                }
                if directive == Directive::Delete {
                    merged.retain(|item| item[key] != change[key]);
                    continue;
                }
            }
            match merged.iter_mut().find(|item| same(item, change)) {
                Some(item) => *item = self.value(item, change, path)?,
                None => merged.push(self.value(&Value::Null, change, path)?),
            }
        }
        Ok(in_order(merged, order.unwrap_or(patch), original, same.as_ref()))
    }
}

/// Compares two elements of a list for identity.
type Same = dyn Fn(&Value, &Value) -> bool;

/// Puts the elements that `wanted` names in its order; the others keep their places among them as they stood
/// in `original`. An element that `original` did not have goes before those that only `original` has.
fn in_order(items: Vec<Value>, wanted: &[Value], original: &[Value], same: &Same) -> Vec<Value> {
    let place = |list: &[Value], item: &Value| list.iter().position(|other| same(other, item));
    let (mut named, others): (Vec<_>, Vec<_>) =
        items.into_iter().partition(|item| place(wanted, item).is_some());
    named.sort_by_key(|item| place(wanted, item));
    let mut ordered = Vec::with_capacity(named.len() + others.len());
    let mut named = named.into_iter().peekable();
    for other in others {
        let stood = place(original, &other);
        while let Some(next) = named.next_if(|next| place(original, next).is_none_or(|at| Some(at) < stood)) {
            ordered.push(next);
        }
        ordered.push(other);
    }
    ordered.extend(named);
    ordered
}

#[derive(PartialEq, Eq)]
enum Directive {
    Merge,
    Replace,
    Delete,
}

fn directive(patch: &Map<String, Value>, path: &str) -> Result<Directive, Error> {
    match patch.get(PATCH).map(Value::as_str) {
        None | Some(Some("merge")) => Ok(Directive::Merge),
        Some(Some("replace")) => Ok(Directive::Replace),
        Some(Some("delete")) => Ok(Directive::Delete),
        Some(other) => Err(Error::UnknownDirective {
            path: path.into(),
            directive: other.map_or_else(|| patch[PATCH].to_string(), Into::into),
        }),
    }
}

fn without_directives(patch: &Map<String, Value>) -> Map<String, Value> {
    let kept = patch.iter().filter(|(field, value)| !field.starts_with('$') && !value.is_null());
    kept.map(|(field, value)| (field.clone(), clean(value))).collect()
}

fn clean(value: &Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(without_directives(fields)),
        Value::Array(items) => Value::Array(items.iter().map(clean).collect()),
        other => other.clone(),
    }
}

fn array<'a>(value: &'a Value, path: &str) -> Result<&'a [Value], Error> {
    value.as_array().map(Vec::as_slice).ok_or_else(|| wrong_type(path, "a list"))
}

fn wrong_type(path: &str, wanted: &'static str) -> Error {
    Error::WrongType { path: path.into(), wanted }
}

fn join(path: &str, field: &str) -> String {
    if path.is_empty() { field.into() } else { format!("{path}.{field}") }
}

#[cfg(test)]
mod tests;
