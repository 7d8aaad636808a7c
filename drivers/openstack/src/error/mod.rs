//! Errors of calls: driver errors that keep the error response of the service.

mod rejection;

use std::error::Error;
use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use staffetta_driver::{DriverError, Reason};

pub use self::rejection::Rejection;
pub(crate) use self::rejection::truncated;

/// The result of a call.
pub(crate) type Result<T, E = OpenStackError> = std::result::Result<T, E>;

/// The result of a method of a driver.
pub(crate) type DriverResult<T> = Result<T, DriverError>;

/// The operation of a call, as an imperative for errors: `create a port`.
pub(crate) type Step = &'static str;

/// The failure of a call to a service: a [`DriverError`], with the error response of the service if there was one.
///
/// It names the step and the id of the request in the service's log. It never contains a secret.
#[derive(Clone, Debug)]
pub struct OpenStackError(Box<(DriverError, Option<Rejection>)>);

impl OpenStackError {
    /// The error of a call without a response of the service: nothing was sent, or the response is lost or unusable.
    pub(crate) fn unavailable(step: Step, text: impl Into<String>) -> Self {
        Self(Box::new((DriverError::new(Reason::Unavailable, step).detail(text), None)))
    }

    /// The error of a response with this status. A 404 whose body no service writes does not mean that the resource is missing: it
    /// is a proxy that does not find the service.
    pub(crate) fn rejected(step: Step, status: u16, body: &[u8]) -> Self {
        let (rejection, is_of_a_service) = Rejection::parse(status, body);
        if matches!(status, 404 | 410) && !is_of_a_service {
            return Self::unavailable(
                step,
                format!("{rejection}; the response does not come from the service"),
            );
        }
        let error = DriverError::new(rejection.reason(), step).detail(rejection.to_string());
        Self(Box::new((error, Some(rejection))))
    }

    /// Marks the request as one that may have taken effect, if it is `ambiguous`.
    #[must_use]
    pub(crate) fn maybe_applied(self, ambiguous: bool) -> Self {
        if ambiguous { self.with(DriverError::maybe_applied) } else { self }
    }

    /// Sets the delay before the call may be repeated.
    #[must_use]
    pub(crate) fn after(self, delay: Duration) -> Self {
        self.with(|error| error.after(delay))
    }

    /// Appends a hint to the message of the service.
    #[must_use]
    pub(crate) fn hint(self, hint: &str) -> Self {
        let said = self.rejection().map(ToString::to_string).unwrap_or_default();
        self.with(|error| error.detail(format!("{said}; {hint}")))
    }

    /// Sets the id of the request in the service's log.
    #[must_use]
    pub(crate) fn request_id(self, id: impl Into<String>) -> Self {
        self.with(|error| error.request_id(id))
    }

    /// Sets the cause.
    #[must_use]
    pub(crate) fn because(self, source: impl Error + Send + Sync + 'static) -> Self {
        self.with(|error| error.because(source))
    }

    fn with(mut self, change: impl FnOnce(DriverError) -> DriverError) -> Self {
        self.0.0 = change(self.0.0);
        self
    }

    /// The error response of the service, if there was one.
    pub fn rejection(&self) -> Option<&Rejection> {
        self.0.1.as_ref()
    }

    /// The HTTP status of the error response.
    pub fn status(&self) -> Option<u16> {
        self.rejection().map(|rejection| rejection.status)
    }

    /// Returns `true` if the service named this error type: `error.is("DuplicateSubPort")`.
    pub fn is(&self, kind: &str) -> bool {
        self.rejection().is_some_and(|rejection| rejection.kind.as_deref() == Some(kind))
    }

    /// Returns `true` if the error message of the service contains `text`.
    pub(crate) fn mentions(&self, text: &str) -> bool {
        self.rejection().is_some_and(|rejection| rejection.message.contains(text))
    }

    /// Returns `true` if the resource does not exist (404).
    pub fn is_not_found(&self) -> bool {
        self.status() == Some(404)
    }
}

/// Turns the error of a missing resource (404) into `None`.
pub(crate) fn existing<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The error as handlers get it.
impl Deref for OpenStackError {
    type Target = DriverError;

    fn deref(&self) -> &DriverError {
        &self.0.0
    }
}

impl From<OpenStackError> for DriverError {
    fn from(error: OpenStackError) -> Self {
        error.0.0
    }
}

impl fmt::Display for OpenStackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.0.fmt(f)
    }
}

impl Error for OpenStackError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.0.source()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn that_a_thing_does_not_exist_is_believed_of_services_alone() {
        let is_believed = |status, body: &str| {
            let error = OpenStackError::rejected("look", status, body.as_bytes());
            assert!(error.rejection().is_some() || error.reason() == Reason::Unavailable, "{body}");
            error.rejection().is_some()
        };
        for body in [
            r#"{"NeutronError":{"type":"PortNotFound","message":"no","detail":""}}"#,
            r#"{"faultcode":"Client","faultstring":"Load Balancer 1 not found.","debuginfo":null}"#,
            r#"{"error":{"code":404,"message":"Could not find it","title":"Not Found"}}"#,
        ] {
            assert!(is_believed(404, body), "{body}");
        }
        for body in ["", "<html><h1>404</h1></html>", r#"{"other":1}"#] {
            assert!(!is_believed(404, body) && is_believed(403, body), "{body}");
        }
    }
}
