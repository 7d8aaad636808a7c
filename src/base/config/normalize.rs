//! Converts the schemas that schemars generates to the form that the checks, the sample and editors need.

use serde_json::{Map, Value, json};

use super::format::StringFormat;

/// The schema keyword for an option whose value is never shown.
pub(super) const SECRET: &str = "x-secret";

/// The schema keywords that may be used: each is either checked, or only describes the option.
const KEYWORDS: &str = "$schema title description default examples writeOnly type format properties required \
                        additionalProperties items minItems maxItems uniqueItems minLength maxLength minimum maximum \
                        oneOf enum const x-minimum x-maximum x-secret";

/// Normalizes the schema of a section (`depth` 0), of an option (1) or of a part of an option. Removes the alternative `null`, which
/// TOML does not have; replaces the patterns of the network types of ipnet by a format; and makes structs reject unknown names.
///
/// # Errors
///
/// Fails if the schema has a rule that would not be checked. The error describes the rule.
pub(super) fn normalize(schema: &mut Value, depth: usize) -> Result<(), String> {
    let words = schema.as_object_mut().ok_or("it allows anything or nothing")?;
    drop_null(words);
    replace_network(words);
    if depth != 1 && words.contains_key(SECRET) {
        return Err(format!("only an option as a whole can be secret; move {SECRET:?} there"));
    }
    let is_string = words.get("type").is_some_and(|kind| kind == "string");
    for (keyword, value) in words.iter_mut() {
        match keyword.as_str() {
            "properties" => {
                let mut properties = value.as_object_mut().into_iter().flatten();
                properties.try_for_each(|(name, schema)| {
                    normalize(schema, depth + 1).map_err(|reason| format!("`{name}`: {reason}"))
                })?;
            }
            "items" => normalize(value, depth + 1)?,
            "additionalProperties" if value.is_object() => normalize(value, depth + 1)?,
            "format" if is_string && value.as_str().and_then(StringFormat::named).is_none() => {
                return Err(format!("it has the format {value}, which is not checked"));
            }
            "oneOf" if !value.as_array().into_iter().flatten().all(is_choice) => {
                return Err("it is a choice between more than names".to_owned());
            }
            keyword if !KEYWORDS.split_whitespace().any(|known| known == keyword) => {
                return Err(format!("it uses the keyword {keyword:?}, which is not checked"));
            }
            _ => {}
        }
    }
    if words.contains_key("properties") {
        words.insert("additionalProperties".to_owned(), json!(false));
    }
    Ok(())
}

/// Removes the alternative `null` from the types and values that a schema allows.
fn drop_null(words: &mut Map<String, Value>) {
    let is_null = |schema: &Value| schema["type"] == "null" || schema.is_null() || schema == "null";
    for keyword in ["type", "enum", "anyOf"] {
        let Some(Value::Array(alternatives)) = words.get_mut(keyword) else { continue };
        alternatives.retain(|schema| !is_null(schema));
        if let ("type" | "anyOf", [only]) = (keyword, alternatives.as_slice()) {
            let only = only.clone();
            words.remove(keyword);
            let merged = if keyword == "type" { json!({ "type": only }) } else { only };
            for (keyword, value) in merged.as_object().into_iter().flatten() {
                words.entry(keyword.clone()).or_insert(value.clone());
            }
        }
    }
}

/// Replaces the pattern of a network type of ipnet by a format, which can be explained in words. The parser of the type makes the same
/// check.
fn replace_network(words: &mut Map<String, Value>) {
    let format = match words.get("title").and_then(Value::as_str) {
        Some("IP network") => "ip-network",
        Some("IPv4 network") => "ipv4-network",
        Some("IPv6 network") => "ipv6-network",
        _ => return,
    };
    words.retain(|keyword, _| ["description", "default", "examples"].contains(&keyword.as_str()));
    words.extend([("type".to_owned(), json!("string")), ("format".to_owned(), json!(format))]);
}

/// Returns `true` if the schema allows only fixed strings: one (`const`) or several (`enum`).
fn is_choice(choice: &Value) -> bool {
    choice.get("const").is_some_and(Value::is_string) || choice.get("enum").is_some_and(Value::is_array)
}
