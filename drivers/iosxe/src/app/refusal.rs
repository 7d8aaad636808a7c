//! Reasons for refusing a pod or a device's description.

use staffetta_driver::{DriverError, Reason};

/// A field of a pod or of a device's description that is invalid or unsupported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    reason: Reason,
    /// The path of the field: `spec.containers[0].args`.
    path: String,
    why: String,
}

impl Refusal {
    /// Creates a refusal of a field that no device supports.
    pub(crate) fn unsupported(path: impl Into<String>, why: impl Into<String>) -> Self {
        Self { reason: Reason::Unsupported, path: path.into(), why: why.into() }
    }

    /// Creates a refusal of an invalid value.
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
