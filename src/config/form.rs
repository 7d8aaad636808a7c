//! What an option may be: the part of JSON Schema that options need, in types.

use std::collections::BTreeMap;

use super::format::Format;
use super::span::Span;

/// What a value must be.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Form {
    Boolean,
    Integer { minimum: i128, maximum: i128 },
    Number { minimum: Option<f64>, maximum: Option<f64> },
    Span { minimum: Option<Span>, maximum: Option<Span> },
    Text { format: Option<Format>, length: Bounds },
    Choice(Vec<Choice>),
    List { items: Box<Form>, length: Bounds, unique: bool },
    Map { values: Box<Form> },
    Table { entries: BTreeMap<String, Form>, required: Vec<String> },
}

/// One of the names between which a [`Form::Choice`] chooses.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Choice {
    pub(super) name: String,
    /// One sentence for people; may be empty.
    pub(super) about: String,
}

/// How many characters or entries there may be.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Bounds {
    pub(super) minimum: Option<u64>,
    pub(super) maximum: Option<u64>,
}

impl Form {
    /// A choice between named things.
    pub(super) fn choice<'a>(names: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let choice = |(name, about): (&str, &str)| Choice { name: name.to_owned(), about: about.to_owned() };
        Self::Choice(names.into_iter().map(choice).collect())
    }

    /// The type's name, for a message.
    pub(super) fn describe(&self) -> &'static str {
        match self {
            Self::Boolean => "true or false",
            Self::Integer { .. } => "an integer",
            Self::Number { .. } => "a number",
            Self::Span { .. } => "a length of time such as \"30s\"",
            Self::Text { .. } | Self::Choice(_) => "a string",
            Self::List { .. } => "an array",
            Self::Map { .. } | Self::Table { .. } => "a table",
        }
    }
}
