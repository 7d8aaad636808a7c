//! Errors in the access options: all of them, not only the first.

use std::fmt;

/// The access options are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .problems.iter().map(AccessProblem::to_string).collect::<Vec<_>>().join("; "))]
pub struct AccessError {
    /// The problems, at least one.
    pub problems: Vec<AccessProblem>,
}

/// One problem in the access options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessProblem {
    /// The option, or the file with line and column as far as they are known.
    pub location: String,
    /// The problem, and what would be valid.
    pub message: String,
}

impl AccessError {
    /// Creates an error of one problem.
    pub(super) fn new(location: impl Into<String>, message: impl Into<String>) -> Self {
        let problem = AccessProblem { location: location.into(), message: message.into() };
        Self { problems: vec![problem] }
    }
}

impl fmt::Display for AccessProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.location, self.message)
    }
}

/// Collects problems, so that a check continues after the first.
#[derive(Default)]
pub(super) struct AccessProblems(Vec<AccessProblem>);

impl AccessProblems {
    /// Returns the value of a check, or adds its problems.
    pub(super) fn check<T>(&mut self, result: Result<T, AccessError>) -> Option<T> {
        result.map_err(|error| self.add(error)).ok()
    }

    pub(super) fn add(&mut self, error: AccessError) {
        self.0.extend(error.problems);
    }

    /// Returns `value` if there are no problems; a missing value must have left one.
    pub(super) fn finish<T>(self, value: Option<T>) -> Result<T, AccessError> {
        value.filter(|_| self.0.is_empty()).ok_or(AccessError { problems: self.0 })
    }
}
