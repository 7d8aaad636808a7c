//! The errors with which a pod or a device specification is refused.

use staffetta_driver::{DriverError, Reason};

/// Returns the refusal of a field that devices do not support. `path` is the path of the field, and `why` the reason for users.
pub(super) fn unsupported(path: impl AsRef<str>, why: impl AsRef<str>) -> DriverError {
    refusal(Reason::Unsupported, path.as_ref(), why.as_ref())
}

/// Returns the refusal of a field with an invalid value. `path` is the path of the field, and `why` the reason for users.
pub(super) fn invalid(path: impl AsRef<str>, why: impl AsRef<str>) -> DriverError {
    refusal(Reason::Refused, path.as_ref(), why.as_ref())
}

/// Returns the error that refuses the field at `path`, with this reason and, if a kubelet has one, its name for errors of such a field.
fn refusal(reason: Reason, path: &str, why: &str) -> DriverError {
    let error = DriverError::new(reason, "translate a pod for the device");
    let error = match path.rsplit_once('.').map_or("", |(_, field)| field) {
        "image" => error.named("InvalidImageName"),
        "imagePullPolicy" => error.named("ErrImageNeverPull"),
        field if field.starts_with("volume") => error.named("FailedMount"),
        _ => error,
    };
    error.detail(format!("{path}: {why}"))
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
            assert_eq!(unsupported(path, "no").name(), name);
        }
    }
}
