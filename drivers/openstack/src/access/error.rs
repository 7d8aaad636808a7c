//! The error of invalid access options. It contains all problems, not only the first.

use std::fmt;

/// The problems of invalid access options.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .problems.iter().map(AccessProblem::to_string).collect::<Vec<_>>().join("; "))]
pub struct AccessError {
    /// The problems, at least one.
    pub problems: Vec<AccessProblem>,
}

/// One problem in the access options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessProblem {
    /// The option, such as `neutron.auth_url`, or the file with line and column as far as they are known.
    pub location: String,
    /// The problem, often with the valid values.
    pub message: String,
}

impl AccessError {
    /// Creates an error with one problem.
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

/// Collects the problems of several checks, so that checks continue after the first problem.
#[derive(Default)]
pub(super) struct AccessProblems(Vec<AccessProblem>);

impl AccessProblems {
    /// Returns the value of a check, or collects its problems and returns `None`.
    pub(super) fn check<T>(&mut self, result: Result<T, AccessError>) -> Option<T> {
        result.map_err(|error| self.add(error)).ok()
    }

    /// Collects the problems of an error.
    pub(super) fn add(&mut self, error: AccessError) {
        self.0.extend(error.problems);
    }

    /// Returns `value` if there are no problems, and otherwise the error with all of them. If `value` is `None`, a problem must have been
    /// collected.
    pub(super) fn finish<T>(self, value: Option<T>) -> Result<T, AccessError> {
        value.filter(|_| self.0.is_empty()).ok_or(AccessError { problems: self.0 })
    }
}
