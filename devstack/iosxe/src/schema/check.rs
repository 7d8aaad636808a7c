//! Validation of data against their YANG module.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};

use serde_json::{Map, Value};

use super::{Field, Node, Type, child};

/// A validation error, in the terms of RFC 8040 (section 7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Invalid {
    pub(crate) tag: &'static str,
    /// `must-violation`, where a `must` of the module is violated.
    pub(crate) app_tag: Option<&'static str>,
    /// The place, from the node that was checked.
    pub(crate) path: String,
    pub(crate) message: String,
}

impl Invalid {
    fn new(tag: &'static str, path: &str, message: String) -> Self {
        Self { tag, app_tag: None, path: path.to_owned(), message }
    }

    fn value(path: &str, message: String) -> Self {
        Self::new("invalid-value", path, message)
    }
}

/// Checks `value` against its node; of a list, the array of its entries.
pub(crate) fn check(node: &Node, value: &Value, path: &str) -> Result<(), Invalid> {
    match node {
        Node::Leaf(kind) => leaf(*kind, value, path),
        Node::Container(fields) => members(fields, object(value, path)?, path),
        Node::List { keys, fields } => {
            let Value::Array(entries) = value else {
                return Err(Invalid::new(
                    "malformed-message",
                    path,
                    "a list is an array of its entries".into(),
                ));
            };
            let key = |entry: &Value| keys.iter().map(|key| entry[*key].to_string()).collect::<Vec<_>>();
            let mut known = BTreeSet::new();
            entries.iter().try_for_each(|entry| {
                if !known.insert(key(entry)) {
                    return Err(Invalid::value(path, "two entries have one key".into()));
                }
                let entry = object(entry, path)?;
                if let Some(key) = keys.iter().find(|key| !entry.contains_key(**key)) {
                    let message = format!("an entry lacks its key {key}");
                    return Err(Invalid::new("missing-element", path, message));
                }
                members(fields, entry, path)
            })
        }
    }
}

fn object<'a>(value: &'a Value, path: &str) -> Result<&'a Map<String, Value>, Invalid> {
    value
        .as_object()
        .ok_or_else(|| Invalid::new("malformed-message", path, "a container or an entry is an object".into()))
}

fn members(fields: &'static [Field], members: &Map<String, Value>, path: &str) -> Result<(), Invalid> {
    members.iter().try_for_each(|(name, value)| {
        let path = format!("{path}/{name}");
        let unknown = || Invalid::new("unknown-element", &path, format!("unknown element {name}"));
        check(child(fields, name).ok_or_else(unknown)?, value, &path)
    })
}

fn leaf(kind: Type, value: &Value, path: &str) -> Result<(), Invalid> {
    let wrong = |what: &str| Invalid::value(path, format!("{value} is not {what}"));
    let text = || value.as_str().ok_or_else(|| wrong("a string"));
    match kind {
        Type::Any => Ok(()),
        Type::Boolean => value.is_boolean().then_some(()).ok_or_else(|| wrong("a boolean")),
        Type::Number { most, range, must } => number(value, most, range, must, path),
        Type::Enumeration(words) => words
            .contains(&text()?)
            .then_some(())
            .ok_or_else(|| wrong(&format!("one of {}", words.join(", ")))),
        Type::Text { least, most, allowed } => {
            let text = text()?;
            let length = text.chars().count();
            if !(least..=most).contains(&length) {
                let message = format!("{length} characters, and {least} to {most} are allowed");
                return Err(Invalid::value(path, message));
            }
            text.chars().all(allowed).then_some(()).ok_or_else(|| wrong("of the pattern of this leaf"))
        }
        Type::Address => text()?.parse::<IpAddr>().map(drop).map_err(|_| wrong("an address")),
        Type::Ipv6 => text()?.parse::<Ipv6Addr>().map(drop).map_err(|_| wrong("an IPv6 address")),
        Type::Mac => {
            let octets: Vec<_> = text()?.split(':').collect();
            let hexadecimal =
                |octet: &&str| octet.len() == 2 && octet.chars().all(|digit| digit.is_ascii_hexdigit());
            (octets.len() == 6 && octets.iter().all(hexadecimal))
                .then_some(())
                .ok_or_else(|| wrong("a MAC address"))
        }
    }
}

fn number(
    value: &Value,
    most: u64,
    range: (u64, u64),
    must: Option<(u64, u64)>,
    path: &str,
) -> Result<(), Invalid> {
    let Some(number) = value.as_u64().filter(|number| *number <= most) else {
        return Err(Invalid::value(path, format!("{value} is not a number of 0 to {most}")));
    };
    if !(range.0..=range.1).contains(&number) {
        return Err(Invalid::value(path, format!("{number} is out of range: {} to {}", range.0, range.1)));
    }
    match must {
        Some((least, most)) if !(least..=most).contains(&number) => Err(Invalid {
            tag: "operation-failed",
            app_tag: Some("must-violation"),
            path: path.to_owned(),
            message: format!("must be in range of {least}..{most}"),
        }),
        _ => Ok(()),
    }
}
