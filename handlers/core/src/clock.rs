//! The boot clock, by which leases and leadership terms are measured. It cannot be set, and goes on while the
//! computer sleeps.

use std::ops::{Add, Sub};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A time on the boot clock of this computer, `CLOCK_BOOTTIME` of `clock_gettime(2)`. The clock continues while the process is stopped
/// and while the computer is suspended, and nobody can set it. Times of different computers are not comparable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct BootTime(Duration);

impl BootTime {
    /// Returns the current time on the boot clock.
    pub fn now() -> Self {
        let time = Duration::try_from(clock_gettime(ClockId::Boottime));
        Self(time.expect("the boot clock starts at 0"))
    }

    /// Returns the nanoseconds since the computer was started. They fit in the type for five centuries.
    pub fn as_nanos(self) -> u64 {
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

    /// Returns the time since `earlier`; zero if `earlier` is later than `self`.
    fn sub(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}
