//! Reads options from environment variables: `STAFFETTA_SECTION__OPTION`.

use std::ffi::OsString;

use serde_json::{Map, Value, json};

use super::location::{Location, OptionPath};
use super::mistake::Mistake;
use super::schema::FileSchema;

/// The prefix of the variables that set options.
const PREFIX: &str = "STAFFETTA_";

/// Reads the options among `variables` into an object of sections, and adds unusable variables to `mistakes`. A variable without `__` is
/// ignored, because tests and the command line use some, unless it is the name of an option with one underscore too few.
pub(super) fn read(
    schema: &FileSchema,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
    mistakes: &mut Vec<Mistake>,
) -> Value {
    let mut sections = Map::new();
    for (name, text) in variables {
        let Some(name) = name.into_string().ok().filter(|name| name.starts_with(PREFIX)) else { continue };
        let Some((section, option)) = name[PREFIX.len()..].split_once("__") else {
            mistakes.extend(underscore_mistake(schema, &name));
            continue;
        };
        let (section, option) = (section.to_lowercase(), option.to_lowercase());
        let Ok(text) = text.into_string() else {
            let path = format!("{section}.{option}");
            mistakes.push(mistake(name, path, "is not UTF-8".to_owned()));
            continue;
        };
        let value = read_value(schema, &section, &option, &text);
        let options = sections.entry(section).or_insert_with(|| json!({}));
        options[option] = value;
    }
    Value::Object(sections)
}

/// Returns the variable that set the option at `path`. If `path` is that of a section, returns a variable that set one of its options.
pub(super) fn location(values: &Value, path: &OptionPath) -> Location {
    let section = path.key_at(0).unwrap_or_default();
    let first = || values[section].as_object().and_then(|options| options.keys().next());
    let option = path.key_at(1).or_else(|| first().map(String::as_str)).unwrap_or_default();
    Location::Environment { variable: variable(section, option) }
}

/// Interprets `text` as the first of these forms that the type of the option accepts: the text itself, a TOML value, words between
/// commas. If none fits, it returns the most likely form, so that the check reports the mistake.
fn read_value(schema: &FileSchema, section: &str, option: &str, text: &str) -> Value {
    let trimmed = text.trim();
    let toml =
        toml::from_str::<Value>(&format!("value = {trimmed}\n")).map(|mut table| table["value"].take());
    let words =
        || trimmed.split(',').map(str::trim).filter(|word| !word.is_empty()).map(Value::from).collect();
    let readings =
        [Some(Value::from(text)), toml.ok(), (!trimmed.starts_with('[')).then(|| Value::Array(words()))];
    let fits = |value: &&Value| {
        schema.section(section).is_some_and(|section| (section.check)(json!({ option: value })).is_ok())
    };
    let readings: Vec<_> = readings.into_iter().flatten().collect();
    let structured = readings.iter().rfind(|value| value.is_array() || value.is_object());
    let guess = structured.filter(|_| trimmed.starts_with(['[', '{'])).unwrap_or(&readings[0]);
    readings.iter().find(fits).unwrap_or(guess).clone()
}

/// Returns a mistake if the variable has one underscore after the section instead of two, such as `STAFFETTA_RELAY_FIRST_LIST_BACKLOG`,
/// because such a variable sets nothing.
fn underscore_mistake(schema: &FileSchema, name: &str) -> Option<Mistake> {
    let mut variables = schema
        .sections
        .iter()
        .flat_map(|section| section.options.iter().map(|option| variable(&section.name, &option.name)));
    let meant = variables.find(|known| known.replacen("__", "_", 1) == name)?;
    let message = format!("sets nothing; write {meant}, with two underscores after the section");
    Some(mistake(name.to_owned(), String::new(), message))
}

/// Returns the name of the variable that sets an option.
fn variable(section: &str, option: &str) -> String {
    format!("{PREFIX}{section}__{option}").to_uppercase()
}

fn mistake(variable: String, path: String, message: String) -> Mistake {
    Mistake { location: Location::Environment { variable }, path, message }
}
