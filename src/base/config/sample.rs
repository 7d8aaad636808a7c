//! The command `config sample`: a configuration file with all options, commented out, with their defaults.

use std::fmt::{Display, Write as _};

use serde_json::{Value, json};

use super::format::StringFormat;
use super::limits::{SPAN_MAXIMUM, SPAN_MINIMUM, choices};
use super::schema::{FileSchema, OptionSchema, is_secret};

/// The maximum width of a comment in the sample, in characters.
const WIDTH: usize = 100;

/// The comment at the beginning of the sample.
const HEADER: &str = "\
The configuration of staffetta. Every option is listed, commented out, with its default.

A variable STAFFETTA_SECTION__OPTION of the environment overrides the file: STAFFETTA_LOG__LEVEL=debug.
A length of time is a number of seconds or a string with units: \"500ms\", \"30s\", \"2m30s\", \"1h\".
`staffetta config check` reports mistakes, `staffetta config show` shows the options in effect and their origins.";

impl FileSchema {
    /// Returns the sample file in TOML. The line of an option begins with `#` and no space: to set the option, remove the `#`.
    pub fn sample(&self) -> String {
        let mut sample = String::new();
        comment(&mut sample, HEADER);
        for section in &self.sections {
            sample.push('\n');
            comment(&mut sample, &section.about);
            writeln!(sample, "[{}]", section.name).expect("writing to a string cannot fail");
            for option in &section.options {
                sample.push('\n');
                option.sample(&mut sample);
            }
        }
        sample
    }
}

impl OptionSchema {
    /// Adds the option to the sample: its description, its limits, and a line with its default.
    fn sample(&self, sample: &mut String) {
        comment(sample, self.schema["description"].as_str().unwrap_or_default());
        for line in rules(&self.schema) {
            comment(sample, &line);
        }
        let value = if self.default.is_null() {
            comment(sample, "Not set by default.");
            self.schema["examples"].get(0).cloned().unwrap_or_else(|| example(&self.schema))
        } else if is_secret(&self.schema) {
            example(&self.schema)
        } else {
            self.default.clone()
        };
        writeln!(sample, "#{} = {}", self.name, inline(&value)).expect("writing to a string cannot fail");
    }
}

/// Describes the limits in `schema`, one on each line.
fn rules(schema: &Value) -> Vec<String> {
    if let Some(choices) = choices(schema) {
        return named("One of:", &choices);
    }
    let bound = |name: &str| schema[name].as_i64();
    let count = |minimum: &str, maximum: &str, units: &str| match (bound(minimum), bound(maximum)) {
        (Some(1), None) => Some("Not empty.".to_owned()),
        (minimum, maximum) => range(minimum, maximum, &format!(" {units}")),
    };
    match schema["type"].as_str() {
        Some("integer" | "number") => {
            // The ends of the 32-bit and 64-bit integers are limits of the type, not of the option.
            let maximum = bound("maximum").filter(|maximum| *maximum < i32::MAX.into());
            let own = |minimum: &i64| *minimum > 0 || (maximum.is_some() && *minimum > i32::MIN.into());
            range(bound("minimum").filter(own), maximum, "").into_iter().collect()
        }
        Some("string") => {
            let format = schema["format"].as_str().and_then(StringFormat::named);
            let format = format.map(|format| format!("{}.", capitalized(format.about)));
            format.into_iter().chain(count("minLength", "maxLength", "characters")).collect()
        }
        Some("array") => {
            let items = match choices(&schema["items"]) {
                Some(choices) => named("Any of:", &choices),
                None => rules(&schema["items"]),
            };
            items.into_iter().chain(count("minItems", "maxItems", "entries")).collect()
        }
        Some("object") => rules(&schema["additionalProperties"]),
        _ if schema["format"] == "span" => {
            range(schema[SPAN_MINIMUM].as_str(), schema[SPAN_MAXIMUM].as_str(), "").into_iter().collect()
        }
        _ => Vec::new(),
    }
}

/// Returns a placeholder, for the sample, for the value of an option that has neither a default nor an example, or that is secret and has a
/// default.
fn example(schema: &Value) -> Value {
    match schema["type"].as_str() {
        Some("boolean") => json!(false),
        Some("integer" | "number") => json!(schema["minimum"].as_i64().unwrap_or_default().max(0)),
        Some("string") => {
            choices(schema).and_then(|choices| Some(choices.first()?.0)).unwrap_or("...").into()
        }
        Some("array") => json!([]),
        Some("object") => json!({}),
        _ => schema.get(SPAN_MINIMUM).cloned().unwrap_or_else(|| "1s".into()),
    }
}

/// Formats a value as TOML, on one line.
pub(super) fn inline(value: &Value) -> String {
    toml::Value::try_from(value).map_or_else(|_| value.to_string(), |value| value.to_string())
}

/// Returns the line `intro`, followed by a line for each name that a string may have, with its description.
fn named(intro: &str, choices: &[(&str, &str)]) -> Vec<String> {
    let line = |(name, about): &(&str, &str)| match *about {
        "" => format!("- {name:?}"),
        about => format!("- {name:?}: {}", about.replace('\n', " ")),
    };
    std::iter::once(intro.to_owned()).chain(choices.iter().map(line)).collect()
}

/// Describes a range of values; `None` without a minimum and a maximum.
fn range<T: Display>(minimum: Option<T>, maximum: Option<T>, unit: &str) -> Option<String> {
    match (minimum, maximum) {
        (Some(minimum), Some(maximum)) => Some(format!("From {minimum} to {maximum}{unit}.")),
        (Some(minimum), None) => Some(format!("At least {minimum}{unit}.")),
        (None, Some(maximum)) => Some(format!("At most {maximum}{unit}.")),
        (None, None) => None,
    }
}

/// Returns the text with its first letter in upper case.
fn capitalized(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

/// Adds each line of `text` to `sample` as a comment, wrapped at [`WIDTH`].
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
    fn a_word_that_does_not_fit_on_a_line_of_a_comment_starts_the_next_line() {
        let mut sample = String::new();
        let word = "x".repeat(WIDTH - 2);
        comment(&mut sample, &format!("{word} and so on\n\nand {word}"));
        assert_eq!(sample, format!("# {word}\n# and so on\n#\n# and\n# {word}\n"));
    }
}
