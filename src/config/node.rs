//! A value and where it stands: what a file and a variable of the environment have in common.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::mistake::Mistake;
use super::place::{Locator, Place};

/// A value and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) place: Place,
    pub(super) shape: Shape,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Shape {
    Boolean(bool),
    Integer(i128),
    Float(f64),
    String(String),
    Datetime(String),
    Array(Vec<Node>),
    Table(Table),
}

pub(super) type Table = Vec<(Key, Node)>;

/// The name of an option or a section, and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Key {
    pub(super) name: String,
    pub(super) place: Place,
}

impl Shape {
    /// The name of the type, for a message.
    pub(super) fn describe(&self) -> &'static str {
        match self {
            Self::Boolean(_) => "a boolean",
            Self::Integer(_) => "an integer",
            Self::Float(_) => "a floating-point number",
            Self::String(_) => "a string",
            Self::Datetime(_) => "a date or time",
            Self::Array(_) => "an array",
            Self::Table(_) => "a table",
        }
    }

    /// The value without its places.
    pub(super) fn to_json(&self) -> Value {
        match self {
            Self::Boolean(value) => (*value).into(),
            Self::Integer(value) => i64::try_from(*value).map_or_else(
                |_| u64::try_from(*value).map_or_else(|_| value.to_string().into(), Value::from),
                Value::from,
            ),
            Self::Float(value) => (*value).into(),
            Self::String(value) | Self::Datetime(value) => value.as_str().into(),
            Self::Array(items) => items.iter().map(|item| item.shape.to_json()).collect(),
            Self::Table(table) => {
                let entries = table.iter().map(|(key, node)| (key.name.clone(), node.shape.to_json()));
                Value::Object(entries.collect::<Map<_, _>>())
            }
        }
    }
}

/// Reads a whole TOML document; every mistake of syntax is added to `mistakes`.
pub(super) fn document(text: &str, path: Arc<Path>, mistakes: &mut Vec<Mistake>) -> Table {
    let locator = Locator::File { path, text };
    let (table, errors) = DeTable::parse_recoverable(text);
    mistakes.extend(errors.iter().map(|error| syntax(error, &locator)));
    self::table(table.get_ref(), &locator)
}

/// Reads one TOML value, such as `["vif", "lb"]`.
pub(super) fn value(text: &str, locator: &Locator<'_>) -> Result<Node, Mistake> {
    let value = DeValue::parse(text).map_err(|error| syntax(&error, locator))?;
    Ok(node(&value, locator))
}

fn syntax(error: &toml::de::Error, locator: &Locator<'_>) -> Mistake {
    let place = locator.place(&error.span().unwrap_or(0..0));
    Mistake { place, path: String::new(), what: format!("this is not TOML: {}", error.message()) }
}

fn table(table: &DeTable<'_>, locator: &Locator<'_>) -> Table {
    let key = |key: &Spanned<Cow<'_, str>>| Key {
        name: key.get_ref().to_string(),
        place: locator.place(&key.span()),
    };
    table.iter().map(|(name, value)| (key(name), node(value, locator))).collect()
}

fn node(value: &Spanned<DeValue<'_>>, locator: &Locator<'_>) -> Node {
    let shape = match value.get_ref() {
        DeValue::String(text) => Shape::String(text.to_string()),
        DeValue::Integer(number) => {
            let beyond = if number.as_str().starts_with('-') { i128::MIN } else { i128::MAX };
            Shape::Integer(i128::from_str_radix(number.as_str(), number.radix()).unwrap_or(beyond))
        }
        DeValue::Float(number) => Shape::Float(number.as_str().parse().unwrap_or(f64::NAN)),
        DeValue::Boolean(value) => Shape::Boolean(*value),
        DeValue::Datetime(value) => Shape::Datetime(value.to_string()),
        DeValue::Array(items) => Shape::Array(items.iter().map(|item| node(item, locator)).collect()),
        DeValue::Table(inner) => Shape::Table(table(inner, locator)),
    };
    Node { place: locator.place(&value.span()), shape }
}
