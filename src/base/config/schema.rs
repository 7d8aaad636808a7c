//! The schema of the configuration file: all sections, with the names of all handlers and drivers.

use serde_json::{Map, Value, json};
use staffetta_handler::{Registry, Section, SectionError};

use super::mistake::ConfigurationError;
use super::normalize::{SECRET, normalize};

/// The section that names handlers and drivers.
const KUBERNETES: &str = "kubernetes";

/// The sections and options that the configuration file may contain.
#[derive(Debug)]
pub struct FileSchema {
    /// The sections, in the order in which they were registered.
    pub(super) sections: Vec<SectionSchema>,
    /// The JSON Schema of the file.
    pub(super) document: Value,
}

/// One section of the configuration file, with its options.
#[derive(Debug)]
pub(super) struct SectionSchema {
    /// The name of the section, without brackets.
    pub(super) name: String,
    /// The description of the section.
    pub(super) about: String,
    /// The options of the section, in the order of the struct's fields.
    pub(super) options: Vec<OptionSchema>,
    /// Checks that the options can be deserialized as the struct of the section.
    pub(super) check: fn(Value) -> Result<(), SectionError>,
}

/// One option of a section.
#[derive(Debug)]
pub(super) struct OptionSchema {
    /// The name of the option.
    pub(super) name: String,
    /// The normalized JSON Schema of the option, with its description and default.
    pub(super) schema: Value,
    /// The default; `null` for an option that is not set by default.
    pub(super) default: Value,
}

impl FileSchema {
    /// Combines the sections in `registry`. The section `[kubernetes]` gets the names of the handlers, and an option for each driver
    /// trait. Fails if the sections do not form a valid schema.
    pub fn assemble(registry: &Registry) -> Result<Self, ConfigurationError> {
        Self::of_sections(registry, |_| true)
    }

    /// Combines those sections in `registry` for whose names `included` returns `true`. The file must not contain any other section.
    pub(crate) fn of_sections(
        registry: &Registry,
        included: impl Fn(&str) -> bool,
    ) -> Result<Self, ConfigurationError> {
        let mut sections: Vec<SectionSchema> = Vec::new();
        for section in registry.sections().filter(|section| included(&section.name)) {
            if sections.iter().any(|known| known.name == section.name) {
                return Err(ConfigurationError::Schema(format!(
                    "two sections have the name `{}`",
                    section.name
                )));
            }
            let mut section = SectionSchema::read(section)?;
            if section.name == KUBERNETES {
                section.add_names(registry);
            }
            sections.push(section);
        }
        let document = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "The configuration of staffetta",
            "type": "object",
            "properties": sections.iter().map(|section| (section.name.clone(), section.to_json())).collect::<Map<_, _>>(),
            "additionalProperties": false,
        });
        Ok(Self { sections, document })
    }

    /// Returns the JSON Schema (version 2020-12) of the configuration file.
    pub fn to_json(&self) -> Value {
        self.document.clone()
    }

    /// Returns the section called `name`; `None` if there is none.
    pub(super) fn section(&self, name: &str) -> Option<&SectionSchema> {
        self.sections.iter().find(|section| section.name == name)
    }
}

/// The options that this release removed, by section, with the reason. They are accepted with a warning until the next release.
pub(super) const REMOVED: [(&str, &str, &str); 2] = [
    ("relay", "coalesce", "a newer change of an object always replaces a queued one"),
    ("relay", "queue_depth", "a newer change of an object always replaces a queued one"),
];

impl SectionSchema {
    /// Reads and normalizes the schema of a registered section.
    fn read(section: &Section) -> Result<Self, ConfigurationError> {
        let (mut schema, defaults) = ((section.schema)().to_value(), (section.defaults)());
        normalize(&mut schema, 0).map_err(|reason| {
            ConfigurationError::Schema(format!(
                "the schema of `{}` cannot be checked: {reason}",
                section.name
            ))
        })?;
        unwrap_lines(&mut schema);
        let about = schema["description"].as_str().unwrap_or_default().to_owned();
        let properties = schema["properties"].as_object_mut().map(std::mem::take).unwrap_or_default();
        let option = |(name, mut schema): (String, Value)| {
            unwrap_lines(&mut schema);
            let default = defaults[&name].clone();
            if default.is_null() || is_secret(&schema) {
                schema.as_object_mut().and_then(|words| words.remove("default"));
            }
            OptionSchema { name, schema, default }
        };
        let options = properties.into_iter().map(option).collect();
        Ok(Self { name: section.name.clone(), about, options, check: section.check })
    }

    /// Returns the option called `name`; `None` if there is none.
    pub(super) fn option(&self, name: &str) -> Option<&OptionSchema> {
        self.options.iter().find(|option| option.name == name)
    }

    /// Returns the JSON Schema of the section.
    fn to_json(&self) -> Value {
        let options = self.options.iter().map(|option| (option.name.clone(), option.schema.clone()));
        let removed =
            REMOVED.iter().filter(|(section, ..)| *section == self.name).map(|(_, option, reason)| {
                let about = format!("This option has no effect any more: {reason}.");
                ((*option).to_owned(), json!({ "description": about, "deprecated": true }))
            });
        json!({
            "description": self.about,
            "type": "object",
            "properties": options.chain(removed).collect::<Map<_, _>>(),
            "additionalProperties": false,
        })
    }

    /// Limits `enabled_handlers` to the registered handlers, and adds an option `<trait>_driver` for each driver trait.
    fn add_names(&mut self, registry: &Registry) {
        let handlers = registry.handlers().map(|(name, entry)| (name, entry.about.as_str()));
        if let Some(enabled) = self.options.iter_mut().find(|option| option.name == "enabled_handlers") {
            enabled.schema["items"] = choice(handlers);
            if let Value::Array(names) = &mut enabled.default {
                names.retain(|name| registry.handlers().any(|(known, _)| *name == known));
                enabled.schema["default"] = enabled.default.clone();
            }
        }
        let chosen = registry.driver_traits().filter(|interface| interface.has_option);
        self.options.extend(chosen.map(|interface| {
            let drivers = interface.drivers.iter().map(|(name, entry)| (name.as_str(), entry.about.as_str()));
            let default = Value::from(interface.default.as_str());
            let mut schema = choice(drivers);
            schema["description"] = interface.about.as_str().into();
            schema["default"] = default.clone();
            OptionSchema { name: interface.option(), schema, default }
        }));
    }
}

/// Returns `true` if the value of the option with this schema is never shown.
pub(super) fn is_secret(schema: &Value) -> bool {
    schema[SECRET] == true
}

/// Returns the schema of a string that must be one of `names`, each with its description.
fn choice<'a>(names: impl Iterator<Item = (&'a str, &'a str)>) -> Value {
    let names: Vec<_> = names.map(|(name, about)| json!({ "const": name, "description": about })).collect();
    // An empty `oneOf` is no valid schema.
    if names.is_empty() { json!({ "type": "string" }) } else { json!({ "type": "string", "oneOf": names }) }
}

/// Removes the line breaks within the paragraphs of a description, which come from the source code.
fn unwrap_lines(schema: &mut Value) {
    if let Some(Value::String(text)) = schema.get_mut("description") {
        let paragraph = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        *text = text.split("\n\n").map(paragraph).collect::<Vec<_>>().join("\n\n");
    }
}
