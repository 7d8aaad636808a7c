//! The errors of a configuration, with their locations.

use std::path::PathBuf;
use std::{fmt, io};

use super::location::Location;

/// One mistake in the configuration file or in the environment, with advice on how to correct it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mistake {
    /// The location of the wrong key or value.
    pub location: Location,
    /// The option as `section.option`; empty for a mistake that belongs to no option, such as a syntax error.
    pub path: String,
    /// The description of the mistake, and the advice. It never contains the value of a secret.
    pub message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { location, path, message } = self;
        let separator = if path.is_empty() { "" } else { ": " };
        write!(formatter, "{location}: {path}{separator}{message}")
    }
}

/// Returns the mistakes, one on each line, followed by their number.
fn listed(mistakes: &[Mistake]) -> String {
    let mut lines: Vec<_> = mistakes.iter().map(ToString::to_string).collect();
    let plural = if mistakes.len() == 1 { "mistake" } else { "mistakes" };
    lines.push(format!("{} {plural} in the configuration", mistakes.len()));
    lines.join("\n")
}

/// The reason why the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// The file cannot be read.
    #[error("cannot read the configuration file {}: {source}", path.display())]
    Unreadable {
        /// The path of the file.
        path: PathBuf,
        /// The error of the file system.
        source: io::Error,
    },
    /// The file or the environment has mistakes. They are sorted by their location.
    #[error("{}", listed(.0))]
    Mistakes(Vec<Mistake>),
    /// The registered sections do not form a valid schema: two have the same name, or the schema of one has a rule that would not be
    /// checked. This is a bug in the program.
    #[error("{0}")]
    Schema(String),
    /// The merged options do not match the structs of their sections, although each option was checked. This is a bug in the program.
    #[error("the configuration passed every check but does not fit its types; this is a defect of staffetta")]
    Inconsistent(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl From<Vec<Mistake>> for ConfigurationError {
    fn from(mut mistakes: Vec<Mistake>) -> Self {
        mistakes.sort();
        Self::Mistakes(mistakes)
    }
}
