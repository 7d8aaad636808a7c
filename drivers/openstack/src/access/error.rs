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
        Self { problems: vec![AccessProblem { location: location.into(), message: message.into() }] }
    }

    /// Returns the error with these problems, or `Ok` if there are none.
    pub(super) fn check(problems: Vec<AccessProblem>) -> Result<(), Self> {
        if problems.is_empty() { Ok(()) } else { Err(Self { problems }) }
    }
}

impl fmt::Display for AccessProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.location, self.message)
    }
}
