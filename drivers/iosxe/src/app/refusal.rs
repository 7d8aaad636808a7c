//! The reason why a pod or a device specification is refused.

use staffetta_driver::{DriverError, Reason};

/// The refusal of a pod or a device specification: the field that is invalid or unsupported, and the reason.
/// It becomes a [`DriverError`] with the reason `Refused` or `Unsupported`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    reason: Reason,
    /// The path of the field: `spec.containers{app}.args`.
    path: String,
    /// The reason of the refusal, for users.
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
        let error = DriverError::new(reason, "translate a pod for the device");
        let error = match path.rsplit_once('.').map_or("", |(_, field)| field) {
            "image" => error.named("InvalidImageName"),
            "imagePullPolicy" => error.named("ErrImageNeverPull"),
            field if field.starts_with("volume") => error.named("FailedMount"),
            _ => error,
        };
        error.detail(format!("{path}: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_called_as_by_a_kubelet() {
        for (path, name) in [
            ("spec.containers[0].image", Some("InvalidImageName")),
            ("spec.containers[0].imagePullPolicy", Some("ErrImageNeverPull")),
            ("spec.containers[0].volumeMounts[1]", Some("FailedMount")),
            ("spec.containers[0].volumeDevices", Some("FailedMount")),
            ("spec.hostNetwork", None),
        ] {
            assert_eq!(DriverError::from(Refusal::unsupported(path, "no")).name(), name);
        }
    }
}
