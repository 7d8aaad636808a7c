//! The schema of the whole file: all sections, with the names of the handlers and drivers.

use serde_json::{Map, Value, json};
use staffetta_handler::{Registry, Section, SectionError};

use super::normalize::{SECRET, normalize};

/// The section that names handlers and drivers.
const KUBERNETES: &str = "kubernetes";

/// The sections that every program needs.
const REQUIRED: [&str; 7] = [KUBERNETES, "relay", "leader_election", "events", "admin", "log", "shutdown"];

/// The sections and options of the configuration file.
#[derive(Debug)]
pub struct FileSchema {
    pub(super) sections: Vec<SectionSchema>,
    /// The JSON Schema of the file.
    pub(super) document: Value,
}

#[derive(Debug)]
pub(super) struct SectionSchema {
    pub(super) name: String,
    pub(super) about: String,
    pub(super) options: Vec<OptionSchema>,
    check: fn(Value) -> Result<(), SectionError>,
}

#[derive(Debug)]
pub(super) struct OptionSchema {
    pub(super) name: String,
    /// The normalized JSON Schema, with description and default.
    pub(super) schema: Value,
    /// `null` for an option that is not set by default.
    pub(super) default: Value,
    pub(super) secret: bool,
}

/// The registered sections do not form a schema: a bug in the program, not a mistake in its configuration.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// An option's schema has a rule that would not be checked.
    #[error("the schema of `{path}` cannot be checked: {reason}")]
    Unsupported {
        /// The option, or the section.
        path: String,
        /// The rule.
        reason: String,
    },
    /// Two sections have the same name.
    #[error("two sections have the name `{0}`")]
    Ambiguous(String),
    /// A section of the program itself was not registered. [`assembly::registry`](crate::assembly::registry) has all.
    #[error("the section `{0}` was not registered")]
    Missing(&'static str),
}

impl FileSchema {
    /// Joins the sections in `registry`, and gives `[kubernetes]` the names of the handlers and an option for each
    /// driver trait.
    pub fn assemble(registry: &Registry) -> Result<Self, SchemaError> {
        let mut sections: Vec<SectionSchema> = Vec::new();
        for section in registry.sections() {
            if sections.iter().any(|known| known.name == section.name) {
                return Err(SchemaError::Ambiguous(section.name.clone()));
            }
            let mut section = SectionSchema::read(section)?;
            if section.name == KUBERNETES {
                section.add_names(registry);
            }
            sections.push(section);
        }
        let known = |name: &&str| sections.iter().any(|section| section.name == *name);
        if let Some(missing) = REQUIRED.into_iter().find(|name| !known(name)) {
            return Err(SchemaError::Missing(missing));
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

    /// The JSON Schema (2020-12) of the configuration file.
    pub fn to_json(&self) -> Value {
        self.document.clone()
    }

    pub(super) fn section(&self, name: &str) -> Option<&SectionSchema> {
        self.sections.iter().find(|section| section.name == name)
    }
}

impl SectionSchema {
    fn read(section: &Section) -> Result<Self, SchemaError> {
        let unsupported = |path: &str, reason| SchemaError::Unsupported { path: path.to_owned(), reason };
        let mut schema = section.schema.as_value().clone();
        let mut options = Vec::new();
        for (name, mut schema) in schema["properties"].as_object_mut().map(std::mem::take).unwrap_or_default()
        {
            normalize(&mut schema, 1)
                .map_err(|reason| unsupported(&format!("{}.{name}", section.name), reason))?;
            let secret = is_secret(&schema);
            let words = schema.as_object_mut().expect("a schema that was normalized is an object");
            unwrap_lines(words);
            let default = section.defaults[&name].clone();
            words.remove("default");
            if !default.is_null() && !secret {
                words.insert("default".to_owned(), default.clone());
            }
            options.push(OptionSchema { name, schema, default, secret });
        }
        // A rule over several options would be overlooked.
        normalize(&mut schema, 0).map_err(|reason| unsupported(&section.name, reason))?;
        schema.as_object_mut().into_iter().for_each(unwrap_lines);
        let about = schema["description"].as_str().unwrap_or_default().to_owned();
        Ok(Self { name: section.name.clone(), about, options, check: section.check })
    }

    /// Deserializes `options` as the section's struct.
    pub(super) fn fits(&self, options: Value) -> Result<(), SectionError> {
        (self.check)(options)
    }

    pub(super) fn option(&self, name: &str) -> Option<&OptionSchema> {
        self.options.iter().find(|option| option.name == name)
    }

    fn to_json(&self) -> Value {
        let options = self.options.iter().map(|option| (option.name.clone(), option.schema.clone()));
        json!({
            "description": self.about,
            "type": "object",
            "properties": options.collect::<Map<_, _>>(),
            "additionalProperties": false,
        })
    }

    /// Limits `enabled_handlers` to the handlers that exist, and adds `<trait>_driver` for each driver trait.
    fn add_names(&mut self, registry: &Registry) {
        let handlers = registry.handlers().map(|(name, entry)| (name, entry.about.as_str()));
        if let Some(enabled) = self.options.iter_mut().find(|option| option.name == "enabled_handlers") {
            enabled.schema["items"] = choice(handlers);
            if let Value::Array(names) = &mut enabled.default {
                names.retain(|name| registry.handlers().any(|(known, _)| *name == known));
                enabled.schema["default"] = enabled.default.clone();
            }
        }
        self.options.extend(registry.driver_traits().map(|interface| {
            let drivers = interface.drivers.iter().map(|(name, entry)| (name.as_str(), entry.about.as_str()));
            let default = Value::from(interface.default.as_str());
            let mut schema = choice(drivers);
            schema["description"] = interface.about.as_str().into();
            schema["default"] = default.clone();
            OptionSchema { name: interface.option(), schema, default, secret: false }
        }));
    }
}

impl OptionSchema {
    /// The documentation of the option, without that of its limits.
    pub(super) fn about(&self) -> &str {
        self.schema["description"].as_str().unwrap_or_default()
    }
}

/// Returns `true` if the option with this schema is never shown.
pub(super) fn is_secret(schema: &Value) -> bool {
    schema[SECRET] == true
}

/// The schema of a string that is one of `names`, each with its description.
fn choice<'a>(names: impl Iterator<Item = (&'a str, &'a str)>) -> Value {
    let names = names.map(|(name, about)| json!({ "const": name, "description": about }));
    json!({ "type": "string", "oneOf": names.collect::<Vec<_>>() })
}

/// Removes the line breaks that the source of a doc comment has within a paragraph.
fn unwrap_lines(words: &mut Map<String, Value>) {
    if let Some(Value::String(text)) = words.get_mut("description") {
        let paragraph = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        *text = text.split("\n\n").map(paragraph).collect::<Vec<_>>().join("\n\n");
    }
}
