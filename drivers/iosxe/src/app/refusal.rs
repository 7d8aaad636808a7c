//! Reasons for refusing a pod.

use staffetta_driver::{DriverError, Reason};

/// A field of a pod that a device cannot do as it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    reason: Reason,
    /// The path of the field: `spec.containers[0].args`.
    path: String,
    why: String,
}

impl Refusal {
    /// No device can do such a thing.
    pub(crate) fn unsupported(path: impl Into<String>, why: impl Into<String>) -> Self {
        Self { reason: Reason::Unsupported, path: path.into(), why: why.into() }
    }

    /// The value cannot be right.
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
