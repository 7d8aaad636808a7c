//! What an OpenStack service refused, or why nobody knows.

mod body;
mod meaning;

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use staffetta_driver::{DriverError, Reason};

pub(crate) use self::body::{bounded, refused};

/// Why a call of a service did not come to its answer.
///
/// It names the step, says what was wrong, keeps the id by which the service's own log names the request, and becomes a
/// [`DriverError`] that says what a handler must know. It never holds a secret.
#[derive(Clone, Debug)]
pub struct OpenStackError(Box<Told>);

#[derive(Clone, Debug)]
struct Told {
    step: Cow<'static, str>,
    problem: Problem,
    ambiguous: bool,
    retry_after: Option<Duration>,
    request_id: Option<String>,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

/// What was wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The service answered, and said no.
    Refused(Refusal),
    /// There is no way to the service: nothing was sent, or something that stands before it answered.
    Unreachable(String),
    /// The request was sent, and no whole answer came.
    Unanswered(String),
    /// A whole answer came that says nothing which can be understood.
    Unreadable(String),
    /// The cloud has no such service, or not where it is looked for.
    NoService(String),
}

/// The answer of a service that said no.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    /// What kind of refusal it is, where the service has a word for it: `NeutronError.type`.
    pub kind: Option<String>,
    /// What the service said, cut where it said too much. Empty when it said nothing.
    pub message: String,
}

impl OpenStackError {
    /// `step` says what was tried, as an imperative: `make a port`.
    pub fn new(step: impl Into<Cow<'static, str>>, problem: Problem) -> Self {
        Self(Box::new(Told {
            step: step.into(),
            problem,
            ambiguous: false,
            retry_after: None,
            request_id: None,
            source: None,
        }))
    }

    /// Says that the step may have taken effect all the same.
    #[must_use]
    pub(crate) fn maybe_done(mut self, ambiguous: bool) -> Self {
        self.0.ambiguous = ambiguous;
        self
    }

    /// Adds how long to wait before the call is repeated.
    #[must_use]
    pub(crate) fn after(mut self, delay: Option<Duration>) -> Self {
        self.0.retry_after = delay;
        self
    }

    /// Adds to what the service said why it may have said no.
    #[must_use]
    pub(crate) fn adding(mut self, words: &str) -> Self {
        if let Problem::Refused(refusal) = &mut self.0.problem {
            refusal.message.push_str("; ");
            refusal.message.push_str(words);
        }
        self
    }

    /// Adds the id by which the service's log names the request.
    #[must_use]
    pub(crate) fn request_id(mut self, id: Option<String>) -> Self {
        self.0.request_id = id;
        self
    }

    /// Adds the cause.
    #[must_use]
    pub(crate) fn because(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.0.source = Some(Arc::new(source));
        self
    }

    /// What was wrong.
    pub fn problem(&self) -> &Problem {
        &self.0.problem
    }

    /// The service's refusal, if that is what it is.
    pub fn refusal(&self) -> Option<&Refusal> {
        match &self.0.problem {
            Problem::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// The HTTP status, where there was an answer.
    pub fn status(&self) -> Option<u16> {
        self.refusal().map(|refusal| refusal.status)
    }

    /// Whether the service called it so: `error.is("DuplicateSubPort")`.
    pub fn is(&self, kind: &str) -> bool {
        self.refusal().is_some_and(|refusal| refusal.kind.as_deref() == Some(kind))
    }

    /// Whether what the call names does not exist (404): to one who deletes it, it is done.
    pub fn is_not_found(&self) -> bool {
        self.status() == Some(404)
    }

    /// Whether the step may have taken effect all the same.
    pub fn ambiguous(&self) -> bool {
        self.0.ambiguous
    }

    /// After how long the service wants to be asked again.
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// What it means to a handler.
    pub fn reason(&self) -> Reason {
        meaning::reason(&self.0.problem)
    }
}

/// What was found, or done; none where it does not exist (404).
pub(crate) fn existing<T>(result: Result<T, OpenStackError>) -> Result<Option<T>, OpenStackError> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

impl fmt::Display for OpenStackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.step, self.0.problem)?;
        if let Some(id) = &self.0.request_id {
            write!(f, " (request {id})")?;
        }
        Ok(())
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Unreachable(text)
            | Self::Unanswered(text)
            | Self::Unreadable(text)
            | Self::NoService(text) => f.write_str(text),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HTTP {}", self.status)?;
        if let Some(kind) = &self.kind {
            write!(f, " {kind}")?;
        }
        if !self.message.is_empty() {
            write!(f, ": {}", self.message)?;
        }
        Ok(())
    }
}

impl Error for OpenStackError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

impl From<OpenStackError> for DriverError {
    fn from(error: OpenStackError) -> Self {
        let reason = error.reason();
        let error = *error.0;
        let mut driver = Self::new(reason, error.step).detail(error.problem.to_string());
        if let Some(delay) = error.retry_after {
            driver = driver.after(delay);
        }
        if error.ambiguous {
            driver = driver.maybe_done();
        }
        if let Some(id) = error.request_id {
            driver = driver.request_id(id);
        }
        match error.source {
            Some(source) => driver.because(Cause(source)),
            None => driver,
        }
    }
}

/// A cause that is shared.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Cause(Arc<dyn Error + Send + Sync>);
