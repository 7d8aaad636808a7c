//! Prevents the combination of real and simulated drivers: the drivers of one cloud cannot use the ids that those of another cloud return.

use staffetta_handler::{Setup, SetupError};

/// A family of drivers that exchange the ids of projects, networks, subnets and security groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DriverFamily {
    /// Drivers of a real cloud, OpenStack or EC2. Drivers that exchange no such ids, as those of IOS-XE, belong to no family.
    #[cfg(any(feature = "openstack", feature = "ec2"))]
    Real,
    /// Drivers of the simulated cloud: `memory` and `simulated`.
    #[cfg(feature = "memory")]
    Simulated,
}

impl DriverFamily {
    /// Records in `setup` that a driver of this family is in use.
    ///
    /// # Errors
    ///
    /// A driver of another family is in use already.
    pub(super) fn select(self, setup: &Setup) -> Result<(), SetupError> {
        if *setup.shared(|| Ok(self))? == self {
            return Ok(());
        }
        let wrong = "simulated drivers (`memory`, `simulated`) cannot be combined with those of OpenStack and EC2: name all drivers of pods and \
                     services in [kubernetes], or none of the simulated ones";
        Err(SetupError::Invalid(wrong.to_owned()))
    }
}
