//! Rates, computed from two successive states of a controller.

use crate::observe::state::{StateSnapshot, WatchSummary};

/// The last two states of a controller, from whose counters the rates are computed.
pub(in crate::operate::cli) struct Rates<'s> {
    pub(in crate::operate::cli) previous: Option<&'s StateSnapshot>,
    pub(in crate::operate::cli) current: &'s StateSnapshot,
}

impl Rates<'_> {
    /// Returns the events of a watch per second, as text; a dash if there is no earlier state of the same processes.
    pub(super) fn events(&self, kind: &str) -> String {
        self.rate(|state| state.watches.iter().find(|watch| watch.kind == kind).map(WatchSummary::events))
    }

    /// Returns the attempts of a handler per second, as text; a dash if there is no earlier state of the same processes.
    pub(in crate::operate::cli) fn attempts(&self, handler: &str) -> String {
        self.rate(|state| {
            state.handlers.iter().find(|known| known.name == handler).map(|known| known.attempts)
        })
    }

    /// Returns the increase per second of the counter that `count` reads, with one decimal; a dash if there is no earlier state of the same
    /// processes, or if the counter is missing or has decreased.
    #[expect(clippy::cast_precision_loss, reason = "the increments of a few seconds are far below 2^52")]
    fn rate(&self, count: impl Fn(&StateSnapshot) -> Option<u64>) -> String {
        let current = self.current;
        let is_same = |previous: &&StateSnapshot| {
            (&previous.identity, &previous.started, &previous.others)
                == (&current.identity, &current.started, &current.others)
        };
        let rate = self.previous.filter(is_same).and_then(|previous| {
            // A watch that is added again begins at 0.
            let increment = count(current)?.checked_sub(count(previous)?)?;
            let seconds = current.uptime_seconds - previous.uptime_seconds;
            (seconds > 0.0).then(|| increment as f64 / seconds)
        });
        rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}"))
    }
}
