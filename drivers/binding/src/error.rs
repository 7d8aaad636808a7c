//! Converts I/O errors of the kernel to errors of a driver.

use std::io;

use staffetta_driver::{DriverError, Reason};

/// Returns a function that turns an error of the kernel into a driver error of the step `step`, such as `add a route`.
pub(crate) fn failed(step: &'static str) -> impl Fn(io::Error) -> DriverError {
    move |error| DriverError::new(reason(&error), step).because(error)
}

/// Returns the reason for an error of the kernel. It is final (not [transient](Reason::transient)) if the kernel lacks the function,
/// rejects an argument or denies the permission.
fn reason(error: &io::Error) -> Reason {
    match error.kind() {
        io::ErrorKind::AlreadyExists | io::ErrorKind::ResourceBusy => Reason::Conflict,
        io::ErrorKind::Unsupported => Reason::Unsupported,
        io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied => Reason::Refused,
        _ => Reason::Unavailable,
    }
}
