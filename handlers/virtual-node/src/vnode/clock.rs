//! The boot clock, which measures Leases.

use std::ops::Add;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A time on the boot clock of this computer, which continues while the process is stopped and the computer is suspended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BootTime(pub(super) Duration);

impl BootTime {
    /// Returns the current time.
    pub(super) fn now() -> Self {
        let time = Duration::try_from(clock_gettime(ClockId::Boottime));
        Self(time.expect("the boot clock starts at 0"))
    }
}

impl Add<Duration> for BootTime {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }
}
