//! What is wrong with a configuration, and the remedy.

use std::fmt;

use super::place::Place;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mistake {
    /// Where.
    pub place: Place,
    /// The option, as `section.option`; empty for what is wrong with the file as such.
    pub path: String,
    /// What, and what to do about it. The value of a secret is never quoted.
    pub what: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: ", self.place)?;
        if !self.path.is_empty() {
            write!(formatter, "{}: ", self.path)?;
        }
        formatter.write_str(&self.what)
    }
}
