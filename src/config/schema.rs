//! The schema of the whole file: what the program's own sections, the handlers and the drivers say together.

use serde_json::{Map, Value};
use staffetta_handler::{Registry, Section};

use super::form::{Bounds, Form};
use super::read_schema::{Reader, SECRET};

/// The section that names handlers and drivers.
const KUBERNETES: &str = "kubernetes";

/// The sections without which there is no program.
const ESSENTIAL: [&str; 5] = [KUBERNETES, "relay", "admin", "log", "shutdown"];

/// What the configuration file may contain.
#[derive(Debug)]
pub struct FileSchema {
    pub(super) sections: Vec<SectionSchema>,
}

#[derive(Debug)]
pub(super) struct SectionSchema {
    pub(super) name: String,
    pub(super) about: String,
    pub(super) options: Vec<OptionSchema>,
}

#[derive(Debug)]
pub(super) struct OptionSchema {
    pub(super) name: String,
    pub(super) about: String,
    pub(super) form: Form,
    /// `null` where the option is not set unless somebody sets it.
    pub(super) default: Value,
    pub(super) example: Option<Value>,
    /// Whether the value must never be shown.
    pub(super) secret: bool,
}

/// Why the sections that were registered make no schema: a mistake in the program, not in its configuration.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// An option's schema has a rule that would not be checked.
    #[error("the schema of `{path}` cannot be held against a file: {reason}")]
    Unsupported {
        /// The option, or the section.
        path: String,
        /// What is not understood.
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
            sections.push(SectionSchema::read(section)?);
        }
        let known = |name: &&str| sections.iter().any(|section| section.name == *name);
        if let Some(missing) = ESSENTIAL.into_iter().find(|name| !known(name)) {
            return Err(SchemaError::Missing(missing));
        }
        let kubernetes = sections.iter_mut().find(|section| section.name == KUBERNETES);
        kubernetes.expect("it is essential").add_names(registry);
        Ok(Self { sections })
    }

    /// The defaults: one object a section.
    pub(super) fn defaults(&self) -> Value {
        let sections = self.sections.iter().map(|section| {
            let options = section.options.iter().map(|option| (option.name.clone(), option.default.clone()));
            (section.name.clone(), Value::Object(options.collect()))
        });
        Value::Object(sections.collect())
    }

    pub(super) fn section(&self, name: &str) -> Option<&SectionSchema> {
        self.sections.iter().find(|section| section.name == name)
    }

    pub(super) fn section_names(&self) -> impl Iterator<Item = &str> {
        self.sections.iter().map(|section| section.name.as_str())
    }
}

impl SectionSchema {
    fn read(section: &Section) -> Result<Self, SchemaError> {
        let unsupported = |path: &str, reason| SchemaError::Unsupported { path: path.to_owned(), reason };
        let schema = section.schema.as_value();
        let reader = Reader { definitions: schema["$defs"].as_object() };
        let mut options = Vec::new();
        for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{}.{name}", section.name);
            let words = reader.flat(schema).map_err(|reason| unsupported(&path, reason))?;
            options.push(OptionSchema {
                name: name.clone(),
                about: description(&words),
                form: reader.option(schema).map_err(|reason| unsupported(&path, reason))?,
                default: section.defaults[name].clone(),
                example: words.get("examples").and_then(|examples| examples.get(0)).cloned(),
                secret: words.get(SECRET).is_some_and(|secret| *secret == true),
            });
        }
        // Read as a whole too, so that a rule over several options is not overlooked.
        reader.section(schema).map_err(|reason| unsupported(&section.name, reason))?;
        let about = schema.as_object().map(description).unwrap_or_default();
        Ok(Self { name: section.name.clone(), about, options })
    }

    pub(super) fn option(&self, name: &str) -> Option<&OptionSchema> {
        self.options.iter().find(|option| option.name == name)
    }

    pub(super) fn option_names(&self) -> impl Iterator<Item = &str> {
        self.options.iter().map(|option| option.name.as_str())
    }

    /// Limits `enabled_handlers` to the handlers that exist, and adds `<trait>_driver` for each driver trait.
    fn add_names(&mut self, registry: &Registry) {
        let handlers = Form::choice(registry.handlers().map(|(name, entry)| (name, entry.about.as_str())));
        let enabled = self.options.iter_mut().find(|option| option.name == "enabled_handlers");
        if let Some(enabled) = enabled {
            if let Value::Array(names) = &mut enabled.default {
                names.retain(|name| registry.handlers().any(|(known, _)| *name == known));
            }
            enabled.form = Form::List { items: Box::new(handlers), length: Bounds::default(), unique: true };
        }

        self.options.extend(registry.interfaces().map(|interface| OptionSchema {
            name: interface.option(),
            about: interface.about.clone(),
            form: Form::choice(
                interface.drivers.iter().map(|(name, entry)| (name.as_str(), entry.about.as_str())),
            ),
            default: interface.default.as_str().into(),
            example: None,
            secret: false,
        }));
    }
}

/// The doc comment, without the line breaks that its source happens to have inside a paragraph.
fn description(words: &Map<String, Value>) -> String {
    let text = words.get("description").and_then(Value::as_str).unwrap_or_default();
    let paragraph = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    text.split("\n\n").map(paragraph).collect::<Vec<_>>().join("\n\n")
}
