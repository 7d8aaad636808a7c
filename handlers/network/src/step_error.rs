//! Failed steps of the handlers, each with its cause.

use std::borrow::Cow;
use std::time::Duration;

use staffetta_driver::{DriverError, Reason};
use staffetta_handler::{Failure, Pending, Stale, WriteError};

use crate::annotation::AnnotationError;

/// The step of waiting until an event shows the handler's last write.
pub(crate) const AWAIT_OWN_WRITE: &str = "await the event of the last write";

/// A failed step of a handler: `find the project of the pod`.
#[derive(Debug, thiserror::Error)]
#[error("{step}")]
pub struct StepError {
    step: Cow<'static, str>,
    #[source]
    cause: StepCause,
}

/// The cause of a failed step.
#[derive(Debug, thiserror::Error)]
pub enum StepCause {
    /// A driver failed.
    #[error(transparent)]
    Driver(Box<DriverError>),
    /// An annotation is malformed.
    #[error(transparent)]
    Annotation(#[from] AnnotationError),
    /// The event is older than the handler's last write.
    #[error(transparent)]
    Stale(#[from] Stale),
    /// The object could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Objects could not be read.
    #[error(transparent)]
    Read(Box<kube::Error>),
}

impl From<DriverError> for StepCause {
    fn from(error: DriverError) -> Self {
        Self::Driver(Box::new(error))
    }
}

impl From<kube::Error> for StepCause {
    fn from(error: kube::Error) -> Self {
        Self::Read(Box::new(error))
    }
}

impl StepError {
    /// The reason that a driver gave.
    pub fn driver_reason(&self) -> Option<Reason> {
        match &self.cause {
            StepCause::Driver(error) => Some(error.reason()),
            _ => None,
        }
    }

    /// Returns `true` if the event is older than the handler's last write, whose event follows.
    pub fn is_stale(&self) -> bool {
        matches!(self.cause, StepCause::Stale(_))
    }

    /// The failed call of the Kubernetes API.
    fn call(&self) -> Option<&dyn Failure> {
        match &self.cause {
            StepCause::Driver(_) | StepCause::Annotation(_) => None,
            StepCause::Stale(error) => Some(error),
            StepCause::Write(error) => Some(error),
            StepCause::Read(error) => Some(&**error),
        }
    }
}

impl Failure for StepError {
    fn transient(&self) -> bool {
        match &self.cause {
            StepCause::Driver(error) => error.transient(),
            _ => self.call().is_some_and(Failure::transient),
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match &self.cause {
            StepCause::Driver(error) => error.retry_after(),
            _ => self.call()?.retry_after(),
        }
    }

    fn pending(&self) -> Option<Pending> {
        (self.driver_reason() == Some(Reason::Awaited)).then(Pending::default)
    }

    fn reason(&self) -> &'static str {
        match &self.cause {
            StepCause::Driver(error) => error.reason().name(),
            _ => self.call().map_or("AnnotationMalformed", Failure::reason),
        }
    }
}

/// Adds the handler's step to a result.
pub(crate) trait StepContext<T> {
    /// Describes the step in the imperative, without a full stop.
    fn step(self, step: impl Into<Cow<'static, str>>) -> Result<T, StepError>;
}

impl<T, E: Into<StepCause>> StepContext<T> for Result<T, E> {
    fn step(self, step: impl Into<Cow<'static, str>>) -> Result<T, StepError> {
        self.map_err(|cause| StepError { step: step.into(), cause: cause.into() })
    }
}
