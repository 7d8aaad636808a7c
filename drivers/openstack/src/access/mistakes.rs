//! What is wrong with what somebody said of a cloud: all of it, not only what was found first.

use std::fmt;

/// Why nobody knows how to reach the cloud.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", told(.mistakes))]
pub struct AccessError {
    /// All that is wrong, as far as it can be read. There is at least one mistake.
    pub mistakes: Vec<AccessMistake>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessMistake {
    /// Where it stands: an option, or a file with line and column as far as they are known.
    pub place: String,
    /// What is wrong there, and what would be right.
    pub what: String,
}

impl AccessError {
    /// One mistake.
    pub(super) fn new(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self { mistakes: vec![AccessMistake { place: place.into(), what: what.into() }] }
    }
}

impl fmt::Display for AccessMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

fn told(mistakes: &[AccessMistake]) -> String {
    mistakes.iter().map(AccessMistake::to_string).collect::<Vec<_>>().join("; ")
}

/// Mistakes that were found so far; who finds one goes on and looks for the next.
#[derive(Default)]
pub(super) struct Mistakes(Vec<AccessMistake>);

impl Mistakes {
    /// What was right, or else nothing, and it is noted what was wrong.
    pub(super) fn note<T>(&mut self, checked: Result<T, AccessError>) -> Option<T> {
        checked.map_err(|error| self.add(error)).ok()
    }

    pub(super) fn add(&mut self, error: AccessError) {
        self.0.extend(error.mistakes);
    }

    pub(super) fn are_none(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<Mistakes> for AccessError {
    fn from(Mistakes(mistakes): Mistakes) -> Self {
        Self { mistakes }
    }
}
