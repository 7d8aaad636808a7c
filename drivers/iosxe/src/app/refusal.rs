//! The reason why a pod or a device specification is refused.

use staffetta_driver::{DriverError, Reason};

/// The refusal of a pod or a device specification: a field that is invalid or unsupported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    reason: Reason,
    /// The path of the field: `spec.containers[0].args`.
    path: String,
    why: String,
}

impl Refusal {
    /// Creates the refusal of a field that devices do not support.
    pub(crate) fn unsupported(path: impl Into<String>, why: impl Into<String>) -> Self {
        Self { reason: Reason::Unsupported, path: path.into(), why: why.into() }
    }

    /// Creates the refusal of a field with an invalid value.
    pub(crate) fn invalid(path: impl Into<String>, why: impl Into<String>) -> Self {
        Self { reason: Reason::Refused, path: path.into(), why: why.into() }
    }
}

impl From<Refusal> for DriverError {
    fn from(refusal: Refusal) -> Self {
        let Refusal { reason, path, why } = refusal;
        DriverError::new(reason, "translate a pod for the device").detail(format!("{path}: {why}"))
    }
}
