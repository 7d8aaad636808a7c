//! The command `config show`: the options in effect and their origins.

use std::fmt::Write as _;

use super::load::Configuration;
use super::location::{Location, OptionPath};
use super::sample::inline;
use super::schema::{FileSchema, OptionSchema, is_secret};

impl Configuration {
    /// Returns the effective configuration as TOML. A comment after each option names its origin: default, file or environment. Secrets
    /// are not shown.
    pub fn show(&self, schema: &FileSchema) -> String {
        let mut shown = String::new();
        for section in &schema.sections {
            let gap = if shown.is_empty() { "" } else { "\n" };
            writeln!(shown, "{gap}[{}]", section.name).expect("writing to a string cannot fail");
            for option in &section.options {
                let line = self.line(&section.name, option);
                writeln!(shown, "{line}").expect("writing to a string cannot fail");
            }
        }
        shown
    }

    /// Returns the line of one option: its name, its value (`"(secret)"` for a secret that is set) and, as a comment, its origin. The
    /// line of an option without a value is a comment that says so.
    fn line(&self, section: &str, option: &OptionSchema) -> String {
        let location = self.origins.get(&OptionPath::of(section, &option.name));
        let origin = match location {
            None => "default".to_owned(),
            Some(location @ Location::File { .. }) => format!("file {location}"),
            Some(location @ Location::Environment { .. }) => location.to_string(),
        };
        let value = &self.value[section][&option.name];
        match (value.is_null(), is_secret(&option.schema) && location.is_some()) {
            (true, _) => format!("# {} is not set", option.name),
            (false, true) => format!("{} = \"(secret)\"  # {origin}", option.name),
            (false, false) => format!("{} = {}  # {origin}", option.name, inline(value)),
        }
    }
}
