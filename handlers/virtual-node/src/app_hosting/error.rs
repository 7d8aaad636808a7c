//! What can go wrong with a `CiscoDevice`.

use std::time::Duration;

use staffetta_driver::DriverError;
use staffetta_handler::Failure;

/// The step that failed for a `CiscoDevice`.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// Its description cannot be right.
    #[error("the description of the device cannot be right: {0}")]
    Invalid(String),
    /// Somebody else has the name of its node.
    #[error("the node of this name is the device of {0}; give one of them another name")]
    Taken(String),
    /// It could not be written.
    #[error("{step} of the device")]
    Write {
        /// What was tried.
        step: &'static str,
        /// Why not.
        #[source]
        source: Box<kube::Error>,
    },
    /// What runs on the device could not be removed.
    #[error("rid the device of what runs there")]
    Remove(#[source] DriverError),
    /// It is being taken out of the cluster, and something is left.
    #[error("the device is being taken out of the cluster: {0}")]
    Leaving(&'static str),
}

impl Failure for DeviceError {
    fn transient(&self) -> bool {
        match self {
            Self::Invalid(_) | Self::Taken(_) => false,
            Self::Write { source, .. } => source.transient(),
            Self::Remove(error) => error.transient(),
            Self::Leaving(_) => true,
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Invalid(_) | Self::Taken(_) => None,
            Self::Write { source, .. } => source.retry_after(),
            Self::Remove(error) => error.retry_after(),
            Self::Leaving(_) => Some(Duration::from_secs(1)),
        }
    }

    fn waits(&self) -> bool {
        matches!(self, Self::Leaving(_))
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "DeviceInvalid",
            Self::Taken(_) => "NodeNameTaken",
            Self::Leaving(_) => "DeviceLeaving",
            Self::Write { source, .. } => source.reason(),
            Self::Remove(error) => error.reason().name(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_leaving_waits_and_one_that_cannot_be_right_does_not() {
        let leaving = DeviceError::Leaving("its node still exists");
        assert!(leaving.waits() && leaving.transient());
        assert!(!DeviceError::Invalid("address: it is missing".to_owned()).waits());
    }
}
