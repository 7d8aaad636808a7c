//! `config sample`: the whole file with every option, commented out, at its default.

use std::fmt::Write as _;

use serde_json::Value;

use super::form::{Bounds, Form};
use super::schema::{FileSchema, OptionSchema};

const WIDTH: usize = 100;

const HEADER: &str = "\
The configuration of staffetta. Every option stands here, commented out, with its default.

A variable STAFFETTA_SECTION__OPTION of the environment goes before the file: STAFFETTA_LOG__LEVEL=debug.
A length of time is a number of seconds or a string with units: \"500ms\", \"30s\", \"2m30s\", \"1h\".
`staffetta config check` finds mistakes, `staffetta config show` tells what holds and why.";

impl FileSchema {
    /// The sample, in TOML. An option's line begins with `#` and no blank: to set it, take the `#` away.
    pub fn sample(&self) -> String {
        let mut sample = String::new();
        comment(&mut sample, HEADER);
        for section in &self.sections {
            sample.push('\n');
            comment(&mut sample, &section.about);
            writeln!(sample, "[{}]", section.name).expect("a string takes whatever is written");
            for option in &section.options {
                sample.push('\n');
                option.sample(&mut sample);
            }
        }
        sample
    }
}

impl OptionSchema {
    fn sample(&self, sample: &mut String) {
        comment(sample, &self.about);
        for line in self.form.rules() {
            comment(sample, &line);
        }
        let value = if self.default.is_null() {
            comment(sample, "Not set by default.");
            self.example.clone().unwrap_or_else(|| self.form.example())
        } else if self.secret {
            self.form.example()
        } else {
            self.default.clone()
        };
        writeln!(sample, "#{} = {}", self.name, inline(&value)).expect("a string takes whatever is written");
    }
}

impl Form {
    /// What is allowed, for people: a line each.
    fn rules(&self) -> Vec<String> {
        let rule = match self {
            Self::Integer { minimum, maximum } => {
                // The ends of the 32-bit and 64-bit integers are the machine's, not the option's.
                let maximum = Some(*maximum).filter(|maximum| *maximum < i32::MAX.into());
                let own = |minimum: &i128| *minimum > 0 || (maximum.is_some() && *minimum > i32::MIN.into());
                range(Some(*minimum).filter(own), maximum, "")
            }
            Self::Number { minimum, maximum } => range(*minimum, *maximum, ""),
            Self::Span { minimum, maximum } => range(*minimum, *maximum, ""),
            Self::Text { format, length } => {
                let format = format.map(|format| format!("{}.", capitalised(format.describe())));
                return format.into_iter().chain(counted(*length, "characters")).collect();
            }
            Self::Choice(choices) => return named("One of:", choices),
            Self::List { items, length, .. } => {
                let Self::Choice(choices) = items.as_ref() else {
                    return items.rules().into_iter().chain(counted(*length, "entries")).collect();
                };
                return named("Any of:", choices).into_iter().chain(counted(*length, "entries")).collect();
            }
            Self::Map { values } => return values.rules(),
            Self::Boolean | Self::Table { .. } => None,
        };
        rule.into_iter().collect()
    }

    /// A value of this form, where nobody gave one.
    fn example(&self) -> Value {
        match self {
            Self::Boolean => false.into(),
            Self::Integer { minimum, maximum } => {
                i64::try_from(0.clamp(*minimum, *maximum)).unwrap_or_default().into()
            }
            Self::Number { minimum, .. } => minimum.unwrap_or_default().into(),
            Self::Span { minimum, .. } => {
                minimum.map_or_else(|| "1s".to_owned(), |minimum| minimum.to_string()).into()
            }
            Self::Text { .. } => "...".into(),
            Self::Choice(choices) => choices.first().map_or("", |choice| &choice.name).into(),
            Self::List { .. } => Value::Array(Vec::new()),
            Self::Map { .. } | Self::Table { .. } => Value::Object(serde_json::Map::new()),
        }
    }
}

/// A value as TOML writes it on one line.
pub(super) fn inline(value: &Value) -> String {
    toml::Value::try_from(value).map_or_else(|_| value.to_string(), |value| value.to_string())
}

fn named(intro: &str, choices: &[super::form::Choice]) -> Vec<String> {
    let line = |choice: &super::form::Choice| match choice.about.as_str() {
        "" => format!("- {:?}", choice.name),
        about => format!("- {:?}: {}", choice.name, about.replace('\n', " ")),
    };
    std::iter::once(intro.to_owned()).chain(choices.iter().map(line)).collect()
}

fn counted(length: Bounds, units: &str) -> Option<String> {
    match (length.minimum, length.maximum) {
        (Some(1), None) => Some("Not empty.".to_owned()),
        (minimum, maximum) => range(minimum, maximum, &format!(" {units}")),
    }
}

fn range<T: std::fmt::Display>(minimum: Option<T>, maximum: Option<T>, unit: &str) -> Option<String> {
    match (minimum, maximum) {
        (Some(minimum), Some(maximum)) => Some(format!("From {minimum} to {maximum}{unit}.")),
        (Some(minimum), None) => Some(format!("At least {minimum}{unit}.")),
        (None, Some(maximum)) => Some(format!("At most {maximum}{unit}.")),
        (None, None) => None,
    }
}

fn capitalised(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

/// Writes each line as a comment, over several lines where it is too long.
fn comment(sample: &mut String, text: &str) {
    for line in text.lines() {
        sample.push('#');
        let mut width = 1;
        for word in line.split_whitespace() {
            let length = 1 + word.chars().count();
            if width > 1 && width + length > WIDTH {
                sample.push_str("\n#");
                width = 1;
            }
            sample.push(' ');
            sample.push_str(word);
            width += length;
        }
        sample.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_that_fills_its_line_to_the_last_place_goes_on_on_the_next() {
        let mut sample = String::new();
        let word = "x".repeat(WIDTH - 2);
        comment(&mut sample, &format!("{word} and so on\n\nand {word}"));
        assert_eq!(sample, format!("# {word}\n# and so on\n#\n# and\n# {word}\n"));
    }
}
