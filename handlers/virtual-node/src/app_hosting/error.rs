//! Errors of reconciling a `CiscoDevice`.

use std::time::Duration;

use staffetta_driver::DriverError;
use staffetta_handler::{Failure, Pending};

/// The step that failed for a `CiscoDevice`.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// Its description is invalid.
    #[error("the description of the device is invalid: {0}")]
    Invalid(String),
    /// Another description has the name of its node.
    #[error("the node name is already used by a device from {0}; rename one of them")]
    Taken(String),
    /// It could not be written.
    #[error("{step} of the device")]
    Write {
        /// The step that failed.
        step: &'static str,
        /// The cause.
        #[source]
        source: Box<kube::Error>,
    },
    /// Workloads on the device could not be removed.
    #[error("remove the applications from the device")]
    Remove(#[source] DriverError),
    /// It is being removed from the cluster, and something is left.
    #[error("the device is being removed: {0}")]
    Leaving(&'static str),
}

impl DeviceError {
    /// The properties of the failure: `true` if it is transient, the delay before the next attempt, and its reason.
    fn class(&self) -> (bool, Option<Duration>, &'static str) {
        match self {
            Self::Invalid(_) => (false, None, "DeviceInvalid"),
            Self::Taken(_) => (false, None, "NodeNameTaken"),
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
        matches!(self, Self::Leaving(_)).then(Pending::default)
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
