//! Where a value stands.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Where a value stands, so that a mistake can be found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// In the configuration file. Lines and columns (in characters) count from 1.
    File {
        /// The file, as it was named.
        path: Arc<Path>,
        /// The line.
        line: usize,
        /// The column.
        column: usize,
    },
    /// In a variable of the environment.
    Environment {
        /// The variable's name.
        variable: Arc<str>,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line, column } => write!(formatter, "{}:{line}:{column}", path.display()),
            Self::Environment { variable } => write!(formatter, "environment {variable}"),
        }
    }
}

/// Turns the offsets of a parser into places.
pub(super) enum Locator<'a> {
    File {
        path: Arc<Path>,
        text: &'a str,
    },
    /// Everything stands at one place.
    Fixed(Place),
}

impl Locator<'_> {
    pub(super) fn place(&self, span: &Range<usize>) -> Place {
        match self {
            Self::File { path, text } => {
                let before = text.get(..span.start).unwrap_or(text);
                let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
                Place::File {
                    path: Arc::clone(path),
                    line: before.matches('\n').count() + 1,
                    column: before[line_start..].chars().count() + 1,
                }
            }
            Self::Fixed(place) => place.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters_not_bytes() {
        let text = "a = 1\nname = \"è\"; b\n";
        let locator = Locator::File { path: Path::new("x.toml").into(), text };
        let offset = text.find("; b").unwrap();
        assert_eq!(locator.place(&(offset..offset)).to_string(), "x.toml:2:11");
        assert_eq!(locator.place(&(0..1)).to_string(), "x.toml:1:1");
        assert_eq!(locator.place(&(text.len()..text.len())).to_string(), "x.toml:3:1");
    }
}
