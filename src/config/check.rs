//! Checks the options of one source, a file or the environment.

use serde_json::{Map, Value};

use super::limits::exceeded;
use super::location::OptionPath;
use super::nearest::{list, nearest};
use super::schema::{FileSchema, SectionSchema};

/// A mistake in the options, with the path of the option but without its position in the file.
pub(super) struct Finding {
    /// The path of the wrong key or value.
    pub(super) path: OptionPath,
    /// The kind of the mistake, which determines its position: that of a key, or that of a value.
    pub(super) kind: FindingKind,
    /// The description of the mistake, without its location.
    pub(super) message: String,
}

/// The kind of a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FindingKind {
    /// A section, option or entry with this name does not exist.
    UnknownName,
    /// The value has a wrong type or exceeds a limit.
    WrongValue,
    /// A required entry of a table is missing.
    MissingEntry,
}

/// Checks `values`, an object of sections, in two steps: names and limits against the schema, then types against the structs of the
/// sections. It finds all unknown names and all values outside their limits, and at least one value of a wrong type in each section.
pub(super) fn check(schema: &FileSchema, values: &Value) -> Vec<Finding> {
    let mut checker = Checker { schema, findings: Vec::new() };
    checker.limits(&schema.document, values, &OptionPath::default(), false);
    for section in &schema.sections {
        if let Some(options) = values.get(&section.name) {
            checker.types(section, options.clone());
        }
    }
    checker.findings
}

/// Collects the mistakes while it walks through the options.
struct Checker<'a> {
    schema: &'a FileSchema,
    findings: Vec<Finding>,
}

impl Checker<'_> {
    /// Checks `value` and everything in it against the names and limits in `schema`.
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

    /// Checks the entries of a table: their names, their values, and that none is missing.
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
                self.limits(schema, entry, &path, secret || super::schema::is_secret(schema));
            } else {
                let message = self.unknown(&path, name, known);
                self.findings.push(Finding { path, kind: FindingKind::UnknownName, message });
            }
        }
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !entries.contains_key(name) {
                let message = format!("the entry {name:?} is missing");
                self.findings.push(Finding { path: path.clone(), kind: FindingKind::MissingEntry, message });
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

    /// Deserializes `options` as the struct of the section. An entry with a mistake is removed and the remaining options are tried again,
    /// so that one mistake does not hide the next.
    fn types(&mut self, section: &SectionSchema, mut options: Value) {
        let root = OptionPath::section(&section.name);
        if !options.is_object() {
            return self.add_wrong_value(&root, format!("must be a section, [{}]", section.name));
        }
        let found = self.findings.iter().filter(|finding| finding.path.0.starts_with(&root.0));
        let complete = found.clone().next().is_none();
        for finding in found.filter(|finding| finding.kind != FindingKind::MissingEntry) {
            finding.path.below_section().remove_from(&mut options);
        }
        while let Err(error) = section.fits(options.clone()) {
            let path = root.join(error.path());
            let message = error.inner().to_string();
            // An entry may be missing only because its value was removed.
            let repeated = self.findings.iter().any(|finding| finding.path == path)
                || (!complete && message.starts_with("missing field"));
            if !repeated {
                let option = path.option().and_then(|option| section.option(option));
                let secret = option.is_some_and(|option| option.secret);
                let hidden = || "has a wrong type or form; it is secret and not shown".to_owned();
                self.add_wrong_value(&path, if secret { hidden() } else { message });
            }
            if !path.below_section().remove_from(&mut options) {
                break;
            }
        }
    }

    /// Adds the mistake that the value at `path` is wrong.
    fn add_wrong_value(&mut self, path: &OptionPath, message: String) {
        self.findings.push(Finding { path: path.clone(), kind: FindingKind::WrongValue, message });
    }
}
