//! Results of attempts to grow or shrink a pool.

use std::time::Duration;

/// The reason why a refill did not create all groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A quota or a subnet is exhausted. That may change at any time.
    Exhausted,
    /// The back end accepts no request for this time.
    Throttled(Duration),
    /// The required configuration is not available: a part of it does not exist, or may not be used. Others may.
    Refused,
    /// The back end failed.
    Failed,
}

/// The result of an attempt to grow. Fewer groups than requested, and a fault beside some groups, are normal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grown<G> {
    /// The groups that were created.
    pub got: Vec<G>,
    /// The number of groups that the same attempt is still creating; 0 at its end.
    pub rest: usize,
    /// The reason why fewer groups were created than requested; `None` if all were.
    pub fault: Option<Fault>,
}

/// Back-off after failures: none after a success, else 1 s, doubled each time, up to 30 s; a longer hint is obeyed. It does not
/// depend on the number of waiting owners.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pressure {
    failures: u32,
    until: Duration,
}

const INITIAL: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);

impl Pressure {
    /// Records the outcome of an attempt.
    pub(crate) fn record(&mut self, fault: Option<Fault>, now: Duration) {
        let Some(fault) = fault else {
            *self = Self::default();
            return;
        };
        let backoff =
            INITIAL.saturating_mul(1_u32.checked_shl(self.failures).unwrap_or(u32::MAX)).min(LONGEST);
        let wait = if let Fault::Throttled(hint) = fault { hint.max(backoff) } else { backoff };
        self.failures = self.failures.saturating_add(1);
        self.until = now.saturating_add(wait);
    }

    /// The remaining delay before the next attempt.
    pub(crate) fn remaining(&self, now: Duration) -> Option<Duration> {
        self.until.checked_sub(now).filter(|remaining| !remaining.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_up_to_its_longest_obeys_a_hint_and_ends_with_success() {
        let mut pressure = Pressure::default();
        let now = Duration::from_secs(100);
        let mut wait = |fault| {
            pressure.record(fault, now);
            pressure.remaining(now).map_or(0, |wait| wait.as_secs())
        };
        assert_eq!([0; 7].map(|_| wait(Some(Fault::Exhausted))), [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(wait(Some(Fault::Throttled(Duration::from_secs(90)))), 90);
        assert_eq!(wait(Some(Fault::Throttled(Duration::from_secs(1)))), 30, "a hint shortens no back-off");
        assert_eq!((wait(None), wait(Some(Fault::Failed))), (0, 1));
    }
}
