//! Label selectors in the form that kubectl has: `team=net,env in (a,b),!legacy`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{Expression, Selector, SelectorExt};

/// The maximum length of a label's value, and of its name without the prefix.
const MAX_LENGTH: usize = 63;

/// Parses a label selector; `None` if `text` is malformed, or empty, because an empty selector would select everything.
pub(crate) fn parse(text: &str) -> Option<Selector> {
    let mut in_list = false;
    let requirements = text.split(|character| {
        match character {
            '(' => in_list = true,
            ')' => in_list = false,
            _ => {}
        }
        character == ',' && !in_list
    });
    requirements.map(|requirement| parse_requirement(requirement.trim())).collect()
}

/// Returns `true` if `selector` selects the labels of an object.
pub(crate) fn matches(selector: &Selector, meta: &ObjectMeta) -> bool {
    selector.matches(meta.labels.as_ref().unwrap_or(&BTreeMap::new()))
}

/// Parses one requirement of a label selector; `None` if it is malformed. The forms are those of `kubectl -l`: `a=b`, `a==b`, `a!=b`, `a in
/// (b,c)`, `a notin (b,c)`, `a` and `!a`.
fn parse_requirement(text: &str) -> Option<Expression> {
    if let Some((words, values)) = text.strip_suffix(')').and_then(|text| text.split_once('(')) {
        let values = values.split(',').map(value).collect::<Option<_>>()?;
        return match words.split_whitespace().collect::<Vec<_>>()[..] {
            [name, "in"] => Some(Expression::In(key(name)?, values)),
            [name, "notin"] => Some(Expression::NotIn(key(name)?, values)),
            _ => None,
        };
    }
    if let Some((name, text)) = text.split_once("!=") {
        return Some(Expression::NotEqual(key(name)?, value(text)?));
    }
    if let Some((name, text)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return Some(Expression::Equal(key(name)?, value(text)?));
    }
    match text.strip_prefix('!') {
        Some(name) => Some(Expression::DoesNotExist(key(name)?)),
        None => Some(Expression::Exists(key(text)?)),
    }
}

/// Returns the trimmed text if it is a label key (a name, with or without a DNS name and a slash before it), otherwise `None`.
fn key(text: &str) -> Option<String> {
    let text = text.trim();
    let (prefix, name) = text.rsplit_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    let is_name = |text: &str| !text.is_empty() && is_value(text);
    let is_dns_label =
        |text: &str| is_name(text) && text.bytes().all(|byte| byte != b'_' && !byte.is_ascii_uppercase());
    let is_key = is_name(name) && prefix.is_none_or(|prefix| prefix.split('.').all(is_dns_label));
    is_key.then(|| text.to_owned())
}

/// Returns the trimmed text if it is a label value, otherwise `None`.
fn value(text: &str) -> Option<String> {
    let text = text.trim();
    is_value(text).then(|| text.to_owned())
}

/// Returns `true` for a label value: an empty text, or letters, digits and inner `-`, `_` and `.`.
fn is_value(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_outer = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= MAX_LENGTH
        && text.bytes().all(is_inner)
        && is_outer(bytes.first())
        && is_outer(bytes.last())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_is_read_as_kubectl_reads_it() {
        let labels = [("team", "net"), ("example.com/env", "a"), ("none", "")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let cases = [
            ("team=net", true),
            ("team == net , none=", true),
            ("team=web", false),
            ("team!=web,absent!=x", true),
            ("team != net", false),
            ("example.com/env in (a, b),team", true),
            ("example.com/env in (b),team", false),
            ("team notin (web,net)", false),
            ("absent notin (x),!absent", true),
            ("!team", false),
            ("absent", false),
            ("team=net,absent", false),
        ];
        for (text, matches) in cases {
            assert_eq!(parse(text).unwrap().matches(&labels), matches, "{text}");
        }
    }

    #[test]
    fn a_text_that_is_no_selector_is_none() {
        let long = format!("a={}", "x".repeat(MAX_LENGTH + 1));
        let none = [
            "",
            " ",
            "a,",
            ",a",
            "a b",
            "=a",
            "a=b c",
            "a=b=c",
            "a in b",
            "a in (b",
            "a in (b))",
            "a on (b)",
            "in (b)",
            "!a=b",
            "!",
            "a>1",
            "-a",
            "a-",
            "/a",
            "a/",
            "X.y/a",
            "a=-",
            "a in ((b))",
            long.as_str(),
        ];
        for text in none {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
