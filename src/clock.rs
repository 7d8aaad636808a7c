//! The boot clock, which measures leases and leadership terms.

use std::ops::{Add, Sub};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A time on the boot clock of this machine, `CLOCK_BOOTTIME` of `clock_gettime(2)`. The clock continues while the process is
/// stopped and while the machine is suspended, and it cannot be set. It is not comparable with that of another machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BootTime(Duration);

impl BootTime {
    /// The current time.
    pub(crate) fn now() -> Self {
        let time = Duration::try_from(clock_gettime(ClockId::Boottime));
        Self(time.expect("the boot clock starts at 0"))
    }

    /// Nanoseconds since the machine was started; the type overflows after five centuries.
    pub(crate) fn as_nanos(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }
}

impl Add<Duration> for BootTime {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }
}

impl Sub for BootTime {
    type Output = Duration;

    /// The time since `earlier`; zero if this is before it.
    fn sub(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}
