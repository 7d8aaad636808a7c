//! Errors of API calls: driver errors that also contain the error response of the service.

mod rejection;

use std::error::Error;
use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use staffetta_driver::{DriverError, Reason};

pub use self::rejection::Rejection;
pub(crate) use self::rejection::truncated;

/// The result of an API call.
pub(crate) type Result<T, E = OpenStackError> = std::result::Result<T, E>;

/// The result of a method of a driver.
pub(crate) type DriverResult<T> = Result<T, DriverError>;

/// The operation of a call, as an imperative that errors contain, such as `create a port`.
pub(crate) type StepName = &'static str;

/// The failure of an API call: a [`DriverError`], and the error response of the service if there was one.
///
/// The error names the operation and the request id, which the service's log also contains. It never contains a secret.
#[derive(Clone, Debug)]
pub struct OpenStackError(Box<(DriverError, Option<Rejection>)>);

impl OpenStackError {
    /// Creates the error of a call without a usable response: the request was not sent, or the response was lost or cannot be read.
    pub(crate) fn unavailable(step: StepName, text: impl Into<String>) -> Self {
        Self(Box::new((DriverError::new(Reason::Unavailable, step).detail(text), None)))
    }

    /// Creates the error of a response with this status and body. If the status is 404 or 410 and the body does not have the format of an
    /// OpenStack service, the error is [`Reason::Unavailable`]: the response comes from a proxy that does not find the service, and does
    /// not mean that the resource is missing.
    pub(crate) fn rejected(step: StepName, status: u16, body: &[u8]) -> Self {
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

    /// Creates the error of a request whose body the service refused as too large: status 413 without `Retry-After`.
    pub(crate) fn too_large(step: StepName, body: &[u8]) -> Self {
        let (rejection, _) = Rejection::parse(413, body);
        let error =
            DriverError::new(Reason::Refused, step).detail(rejection.to_string()).named("RequestTooLarge");
        Self(Box::new((error, Some(rejection))))
    }

    /// If `ambiguous`, records in the error that the failed request may have taken effect.
    #[must_use]
    pub(crate) fn maybe_applied(self, ambiguous: bool) -> Self {
        if ambiguous { self.with(DriverError::maybe_applied) } else { self }
    }

    /// Sets the delay after which the call may be repeated.
    #[must_use]
    pub(crate) fn after(self, delay: Duration) -> Self {
        self.with(|error| error.after(delay))
    }

    /// Replaces the detail of the error by the error response of the service, followed by `hint`.
    #[must_use]
    pub(crate) fn hint(self, hint: &str) -> Self {
        let said = self.rejection().map(ToString::to_string).unwrap_or_default();
        self.with(|error| error.detail(format!("{said}; {hint}")))
    }

    /// Sets the request id, which the service's log also contains.
    #[must_use]
    pub(crate) fn request_id(self, id: impl Into<String>) -> Self {
        self.with(|error| error.request_id(id))
    }

    /// Sets the cause of the error.
    #[must_use]
    pub(crate) fn because(self, source: impl Error + Send + Sync + 'static) -> Self {
        self.with(|error| error.because(source))
    }

    /// Changes the driver error, and keeps the error response of the service.
    fn with(mut self, change: impl FnOnce(DriverError) -> DriverError) -> Self {
        self.0.0 = change(self.0.0);
        self
    }

    /// Returns the error response of the service, or `None` if the call failed without one.
    pub fn rejection(&self) -> Option<&Rejection> {
        self.0.1.as_ref()
    }

    /// Returns the HTTP status of the error response, or `None` if there was none.
    pub fn status(&self) -> Option<u16> {
        self.rejection().map(|rejection| rejection.status)
    }

    /// Returns `true` if the error response of Neutron has this error type (`NeutronError.type`), as in `error.is("DuplicateSubPort")`.
    pub fn is(&self, kind: &str) -> bool {
        self.rejection().is_some_and(|rejection| rejection.kind.as_deref() == Some(kind))
    }

    /// Returns `true` if the message in the error response of the service contains `text`.
    pub(crate) fn mentions(&self, text: &str) -> bool {
        self.rejection().is_some_and(|rejection| rejection.message.contains(text))
    }

    /// Returns `true` if the status of the error response is 404: the resource does not exist.
    pub fn is_not_found(&self) -> bool {
        self.status() == Some(404)
    }
}

/// Returns `true` if the service refused the request because its body was too large, so that a shorter one may succeed.
pub(crate) fn is_too_large(error: &DriverError) -> bool {
    error.name() == Some("RequestTooLarge")
}

/// Converts the error of a missing resource (status 404) to `Ok(None)`. Other errors stay.
pub(crate) fn existing<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Dereferences to the driver error, which is all that handlers get.
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
