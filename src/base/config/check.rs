//! Checks the options of one source, a file or the environment.

use serde_json::{Map, Value};

use super::limits::exceeded;
use super::location::{Location, OptionPath};
use super::mistake::Mistake;
use super::nearest::{list, nearest};
use super::schema::{FileSchema, SectionSchema, is_secret};

/// A mistake in the options, with the path of the option but without its location.
struct Finding {
    /// The path of the wrong key or value.
    path: OptionPath,
    /// `true` if the key is wrong: no section, option or entry has this name. `false` if the value is.
    at_key: bool,
    /// The description of the mistake, without its location.
    message: String,
}

/// Checks `values`, an object of sections, in two steps: names and limits against the schema, then types against the structs of the
/// sections. It finds all unknown names and all values outside their limits, and at least one value of a wrong type in each section.
/// `locate` returns the location of the key (`true`) or the value (`false`) at a path.
pub(super) fn check(
    schema: &FileSchema,
    values: &Value,
    locate: impl Fn(&OptionPath, bool) -> Location,
) -> Vec<Mistake> {
    let mut checker = Checker { schema, findings: Vec::new() };
    checker.limits(&schema.document, values, &OptionPath::default(), false);
    for section in schema.sections.iter().filter(|section| values.get(&section.name).is_some()) {
        checker.types(section, values.clone());
    }
    let mistake = |Finding { path, at_key, message }| {
        let location = locate(&path, at_key);
        Mistake { location, path: path.to_string(), message }
    };
    checker.findings.into_iter().map(mistake).collect()
}

/// Returns a message of serde in which the types of Rust are numbers.
fn in_plain_words(message: &str) -> String {
    let Some((found, expected)) = message.split_once(", expected ") else { return message.to_owned() };
    let plain = match expected {
        "a nonzero usize" | "a nonzero u32" | "a nonzero u64" => "a whole number of at least 1",
        "usize" | "u8" | "u16" | "u32" | "u64" => "a whole number",
        "i32" | "i64" => "a whole number, which may be negative",
        "f32" | "f64" => "a number",
        other => other,
    };
    format!("{found}, expected {plain}")
}

/// The walk through the options of one source, which collects the mistakes.
struct Checker<'a> {
    schema: &'a FileSchema,
    findings: Vec<Finding>,
}

impl Checker<'_> {
    /// Checks `value` and everything in it against the names and limits in `schema`. If `secret` is `true`, no message quotes a value.
    fn limits(&mut self, schema: &Value, value: &Value, path: &OptionPath, secret: bool) {
        for message in exceeded(schema, value, !secret) {
            self.add_wrong_value(path, message);
        }
        match value {
            Value::Object(entries) => self.entries(schema, entries, path, secret),
            Value::Array(items) => {
                let unique = schema["uniqueItems"] == true;
                for (index, item) in items.iter().enumerate() {
                    let path = path.index(index);
                    self.limits(&schema["items"], item, &path, secret);
                    if unique && items[..index].contains(item) {
                        let shown = if secret { "the value".to_owned() } else { item.to_string() };
                        self.add_wrong_value(&path, format!("{shown} is listed twice"));
                    }
                }
            }
            _ => {}
        }
    }

    /// Checks the names and the values of `entries`, the table at `path`. If `secret` is `true`, no message quotes a value.
    fn entries(&mut self, schema: &Value, entries: &Map<String, Value>, path: &OptionPath, secret: bool) {
        let Some(known) = schema["properties"].as_object() else {
            for (name, entry) in entries {
                self.limits(&schema["additionalProperties"], entry, &path.key(name), secret);
            }
            return;
        };
        for (name, entry) in entries {
            let path = path.key(name);
            if let Some(schema) = known.get(name) {
                self.limits(schema, entry, &path, secret || is_secret(schema));
            } else {
                let message = self.unknown(&path, name, known);
                self.findings.push(Finding { path, at_key: true, message });
            }
        }
    }

    /// Returns the message about an unknown section, option or entry `name`, with the most similar known name.
    fn unknown(&self, path: &OptionPath, name: &str, known: &Map<String, Value>) -> String {
        let names = || known.keys().map(String::as_str);
        let depth = path.0.len();
        let home = self.schema.sections.iter().find(|section| section.option(name).is_some());
        let remedy = match (home, nearest(name, names())) {
            (Some(home), _) if depth <= 2 => format!("{name:?} is an option of [{}]", home.name),
            (_, Some(near)) if depth == 1 => format!("did you mean [{near}]?"),
            (_, Some(near)) => format!("did you mean {near:?}?"),
            (_, None) => format!("known are {}", list(names())),
        };
        let what = ["section", "option", "entry"][depth.clamp(1, 3) - 1];
        format!("there is no such {what}; {remedy}")
    }

    /// Deserializes the options of a section in `values` as its struct. An entry with a mistake is removed and the remaining options are
    /// tried again, so that one mistake does not hide the next.
    fn types(&mut self, section: &SectionSchema, mut values: Value) {
        let root = OptionPath::default().key(&section.name);
        if !values[&section.name].is_object() {
            return self.add_wrong_value(&root, format!("must be a section, [{}]", section.name));
        }
        let mut removed = false;
        for finding in self.findings.iter().filter(|finding| finding.path.0.starts_with(&root.0)) {
            removed |= finding.path.remove_from(&mut values);
        }
        while let Err(error) = (section.check)(values[&section.name].clone()) {
            let path = root.join(error.path());
            let message = in_plain_words(&error.inner().to_string());
            let is_incomplete = message.starts_with("missing field");
            // An entry may be missing only because it was removed.
            let repeated =
                self.findings.iter().any(|finding| finding.path == path) || (removed && is_incomplete);
            if !repeated {
                let option = path.key_at(1).and_then(|option| section.option(option));
                // The name of a missing entry is no secret.
                let secret = !is_incomplete && option.is_some_and(|option| is_secret(&option.schema));
                let hidden = || "has a wrong type or form; it is secret and not shown".to_owned();
                self.add_wrong_value(&path, if secret { hidden() } else { message });
            }
            if !path.remove_from(&mut values) {
                break;
            }
            removed = true;
        }
    }

    /// Adds the mistake that the value at `path` is wrong.
    fn add_wrong_value(&mut self, path: &OptionPath, message: String) {
        self.findings.push(Finding { path: path.clone(), at_key: false, message });
    }
}
