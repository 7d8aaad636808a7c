//! The error for a failed step of a handler, with its cause.

use std::borrow::Cow;
use std::time::Duration;

use staffetta_driver::{DriverError, Reason};
use staffetta_handler::{Failure, Pending, Stale, WriteError};

use crate::annotation::AnnotationError;

/// The name of the step in which a handler waits until an event shows its own last write.
pub(crate) const AWAIT_OWN_WRITE: &str = "await the event of the last write";

/// The error for a failed step of a handler. Its text names the step, such as `find the project of
/// the pod`, and its source is the cause.
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
    /// A driver call, for example to OpenStack, failed.
    #[error(transparent)]
    Driver(Box<DriverError>),
    /// An annotation of the object is malformed.
    #[error(transparent)]
    Annotation(#[from] AnnotationError),
    /// The event is older than the handler's last write. A newer event, which shows the write, will
    /// follow.
    #[error(transparent)]
    Stale(#[from] Stale),
    /// The object could not be written to the Kubernetes API.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Objects could not be read from the Kubernetes API.
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
    /// Returns the reason of the driver's error, or `None` if the cause is not a failed driver.
    pub fn driver_reason(&self) -> Option<Reason> {
        match &self.cause {
            StepCause::Driver(error) => Some(error.reason()),
            _ => None,
        }
    }

    /// Returns `true` if the cause is an event that is older than the handler's last write. The
    /// event of that write will follow.
    pub fn is_stale(&self) -> bool {
        matches!(self.cause, StepCause::Stale(_))
    }

    /// Returns the cause if it concerns the Kubernetes API: a stale event, or a failed write or
    /// read. Returns `None` for a failed driver and for a malformed annotation.
    fn kubernetes_cause(&self) -> Option<&dyn Failure> {
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
            _ => self.kubernetes_cause().is_some_and(Failure::transient),
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match &self.cause {
            StepCause::Driver(error) => error.retry_after(),
            _ => self.kubernetes_cause()?.retry_after(),
        }
    }

    fn pending(&self) -> Option<Pending> {
        match &self.cause {
            StepCause::Driver(error) => (error.reason() == Reason::Awaited).then(Pending::default),
            _ => self.kubernetes_cause()?.pending(),
        }
    }

    fn reason(&self) -> &'static str {
        match &self.cause {
            StepCause::Driver(error) => error.reason().name(),
            _ => self.kubernetes_cause().map_or("AnnotationMalformed", Failure::reason),
        }
    }
}

/// Converts the error of a result into a [`StepError`], which names the failed step of the handler.
pub(crate) trait StepContext<T> {
    /// Names the step that failed: in the imperative, without a full stop, such as `list the
    /// existing networks`.
    fn step(self, step: impl Into<Cow<'static, str>>) -> Result<T, StepError>;
}

impl<T, E: Into<StepCause>> StepContext<T> for Result<T, E> {
    fn step(self, step: impl Into<Cow<'static, str>>) -> Result<T, StepError> {
        self.map_err(|cause| StepError { step: step.into(), cause: cause.into() })
    }
}
