//! Rates, computed from two successive states of a controller.

use crate::state::{StateSnapshot, WatchSummary};

/// The last two states of a controller.
pub(super) struct Rates<'s> {
    pub(super) previous: Option<&'s StateSnapshot>,
    pub(super) current: &'s StateSnapshot,
}

impl Rates<'_> {
    /// Returns the events of a watch per second; `None` if there is no earlier state of the same processes.
    pub(super) fn events(&self, kind: &str) -> Option<f64> {
        self.rate(|state| state.watches.iter().find(|watch| watch.kind == kind).map(WatchSummary::events))
    }

    /// Returns the attempts of a handler per second; `None` if there is no earlier state of the same processes.
    pub(super) fn attempts(&self, handler: &str) -> Option<f64> {
        self.rate(|state| {
            state.handlers.iter().find(|known| known.name == handler).map(|known| known.attempts)
        })
    }

    /// Returns the rate of the counter that `count` reads.
    #[expect(clippy::cast_precision_loss, reason = "the increments of a few seconds are far below 2^52")]
    fn rate(&self, count: impl Fn(&StateSnapshot) -> Option<u64>) -> Option<f64> {
        let (previous, current) = (self.previous?, self.current);
        let is_same = (&previous.identity, &previous.started, &previous.others)
            == (&current.identity, &current.started, &current.others);
        let seconds = current.uptime_seconds - previous.uptime_seconds;
        // A watch that is added again begins at 0.
        let increment = count(current)?.checked_sub(count(previous)?)?;
        (is_same && seconds > 0.0).then(|| increment as f64 / seconds)
    }
}
