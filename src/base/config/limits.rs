//! The limits that a schema sets for a value: bounds, lengths, formats, and lists of allowed names.

use std::fmt::Display;

use serde::Deserialize;
use serde_json::Value;

use super::format::StringFormat;
use super::nearest::{list, nearest};
use super::span::TimeSpan;

/// The schema keyword for the minimum duration that an option accepts.
pub(super) const SPAN_MINIMUM: &str = "x-minimum";
/// The schema keyword for the maximum duration that an option accepts.
pub(super) const SPAN_MAXIMUM: &str = "x-maximum";

/// Returns the names that a string may have, each with its description; `None` if the schema does not list names.
pub(super) fn choices(schema: &Value) -> Option<Vec<(&str, &str)>> {
    let mut choices = Vec::new();
    for choice in schema.get("oneOf").or_else(|| schema.get("enum"))?.as_array()? {
        let about = choice["description"].as_str().unwrap_or_default();
        let several = choice["enum"].as_array().map(Vec::as_slice);
        let one = std::slice::from_ref(choice.get("const").unwrap_or(choice));
        for name in several.unwrap_or(one) {
            choices.push((name.as_str()?, about));
        }
    }
    Some(choices)
}

/// Returns a message for each limit in `schema` that `value` exceeds. The type of the value is not checked, because serde does that.
/// Pass `false` for `quote` if the value is secret and no message may contain it.
pub(super) fn exceeded(schema: &Value, value: &Value, quote: bool) -> Vec<String> {
    let not = |value: &dyn Display| if quote { format!(", not {value}") } else { String::new() };
    let bound = |name: &str| schema[name].as_f64();
    let length = |name: &str| schema[name].as_u64();
    let format = schema["format"].as_str().and_then(StringFormat::named);
    match value {
        _ if schema["format"] == "span" => {
            let Ok(span) = TimeSpan::deserialize(value) else { return Vec::new() };
            let bound = |name: &str| TimeSpan::deserialize(&schema[name]).ok();
            outside("must be", span, bound(SPAN_MINIMUM), bound(SPAN_MAXIMUM), &not(&span))
        }
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or(f64::NAN);
            outside("must be", number, bound("minimum"), bound("maximum"), &not(value))
        }
        Value::String(text) => {
            if let Some(choices) = choices(schema) {
                return unknown_choice(&choices, text, quote).into_iter().collect();
            }
            let count = text.chars().count() as u64;
            let wrong = format.and_then(|format| format.check(text).err());
            let shown = if quote { format!("{text:?}") } else { "the value".to_owned() };
            let mut exceeded = outside("length must be", count, length("minLength"), length("maxLength"), "");
            exceeded.extend(wrong.map(|wrong| format!("{shown} {wrong}")));
            exceeded
        }
        Value::Array(items) => {
            outside("length must be", items.len() as u64, length("minItems"), length("maxItems"), "")
        }
        Value::Object(_) => {
            format.map(|format| format!("must be {}, not a table", format.about)).into_iter().collect()
        }
        Value::Bool(_) | Value::Null => Vec::new(),
    }
}

/// Returns a message for each bound that `value` exceeds. `subject` begins each message, and `not` ends it.
fn outside<T: Copy + PartialOrd + Display>(
    subject: &str,
    value: T,
    minimum: Option<T>,
    maximum: Option<T>,
    not: &str,
) -> Vec<String> {
    let low =
        minimum.filter(|minimum| value < *minimum).map(|bound| format!("{subject} at least {bound}{not}"));
    let high =
        maximum.filter(|maximum| value > *maximum).map(|bound| format!("{subject} at most {bound}{not}"));
    low.into_iter().chain(high).collect()
}

/// Returns a message if `name` is not one of `choices`, otherwise `None`. If `quote` is `false`, the message does not contain `name`.
fn unknown_choice(choices: &[(&str, &str)], name: &str, quote: bool) -> Option<String> {
    let known = || choices.iter().map(|(name, _)| *name);
    if known().any(|known| known == name) {
        return None;
    }
    let value = if quote { format!("{name:?}") } else { "such value".to_owned() };
    let hint = nearest(name, known()).map(|name| format!(" (did you mean {name:?}?)")).unwrap_or_default();
    let known = if choices.is_empty() { "none".to_owned() } else { list(known()) };
    Some(format!("there is no {value}{hint}; known are {known}"))
}
