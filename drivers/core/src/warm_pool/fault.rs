//! What comes of an attempt to let a pool grow or shrink.

use std::time::Duration;

/// Why the other world did not do all that it was asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// There is no more to be had: a quota, a subnet. It may change, and nobody says when.
    Exhausted,
    /// It wants to be left alone for this time.
    Throttled(Duration),
    /// It has none that are as they were wanted: something of that does not exist, or may not be had. Others may be wanted
    /// otherwise.
    Refused,
    /// It is in trouble.
    Failed,
}

/// What came of an attempt to grow. Fewer groups than were asked for, and a fault beside some groups, are normal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grown<G> {
    /// The groups that were made.
    pub got: Vec<G>,
    /// Why there are not more.
    pub fault: Option<Fault>,
}

/// When the other world may be asked again after it failed: at once after a success, else after 1 s, twice as late each
/// time, up to 30 s; a hint is obeyed. It does not depend on how many wait.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pressure {
    failures: u32,
    until: Duration,
}

const INITIAL: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);

impl Pressure {
    /// It was asked, and this came of it.
    pub(crate) fn asked(&mut self, fault: Option<Fault>, now: Duration) {
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

    /// For how long it must not be asked.
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
            pressure.asked(fault, now);
            pressure.remaining(now).map_or(0, |wait| wait.as_secs())
        };
        assert_eq!([0; 7].map(|_| wait(Some(Fault::Exhausted))), [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(wait(Some(Fault::Throttled(Duration::from_secs(90)))), 90);
        assert_eq!(wait(Some(Fault::Throttled(Duration::from_secs(1)))), 30, "a hint shortens no back-off");
        assert_eq!((wait(None), wait(Some(Fault::Failed))), (0, 1));
    }
}
