//! Errors of reconciling a `CiscoDevice`.

use std::time::Duration;

use staffetta_driver::DriverError;
use staffetta_handler::{Failure, Pending};

/// An error of reconciling a `CiscoDevice`: the step that failed.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The specification of the device is invalid.
    #[error("the description of the device is invalid: {0}")]
    Invalid(String),
    /// A device of a file or the configuration already uses the node name of the `CiscoDevice`.
    #[error("the node name is already used by a device of a file or the configuration; rename one of them")]
    Taken,
    /// The phase of the device is `Error`. It is looked at again when that changes, and every 30 s.
    #[error("the device takes no pods: {message}")]
    NotReady {
        /// The reason of the condition `Ready`, in CamelCase.
        reason: &'static str,
        /// The message of that condition.
        message: String,
    },
    /// A change of the `CiscoDevice` object or of its status could not be written to the API server.
    #[error("{step} of the device")]
    Write {
        /// The step that failed, as an imperative.
        step: &'static str,
        /// The cause.
        #[source]
        source: Box<kube::Error>,
    },
    /// Workloads on the device could not be removed.
    #[error("remove the applications from the device")]
    Remove(#[source] DriverError),
    /// The device is being removed from the cluster, which is not complete yet. The removal is retried each second.
    #[error("the device is being removed: {0}")]
    Leaving(&'static str),
}

impl DeviceError {
    /// Returns three properties of the error: `true` if it is transient, the delay before the next attempt (`None` for the
    /// default back-off), and the reason, one word in CamelCase.
    fn class(&self) -> (bool, Option<Duration>, &'static str) {
        match self {
            Self::Invalid(_) => (false, None, "DeviceInvalid"),
            Self::Taken => (false, None, "NodeNameTaken"),
            Self::NotReady { reason, .. } => (true, Some(Duration::from_secs(30)), reason),
            Self::Leaving(_) => (true, Some(Duration::from_secs(1)), "DeviceLeaving"),
            Self::Write { source, .. } => (source.transient(), source.retry_after(), source.reason()),
            Self::Remove(error) => (error.transient(), error.retry_after(), error.reason().name()),
        }
    }
}

impl Failure for DeviceError {
    fn transient(&self) -> bool {
        self.class().0
    }

    fn retry_after(&self) -> Option<Duration> {
        self.class().1
    }

    fn pending(&self) -> Option<Pending> {
        matches!(self, Self::Leaving(_) | Self::NotReady { .. }).then(Pending::default)
    }

    fn reason(&self) -> &'static str {
        self.class().2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_leaving_waits_and_one_that_cannot_be_right_does_not() {
        let leaving = DeviceError::Leaving("its node still exists");
        assert!(leaving.pending().is_some() && leaving.transient());
        assert!(DeviceError::Invalid("address: it is missing".to_owned()).pending().is_none());
    }
}
