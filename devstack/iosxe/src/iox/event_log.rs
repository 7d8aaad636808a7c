//! The ledger of a device, which numbers the entries and dates them by the clock of the device.

use std::time::Instant;

use jiff::{SignedDuration, Timestamp};

use crate::ledger::{Effect, Entry};

/// The recorded events of the apps.
#[derive(Debug)]
pub(crate) struct EventLog {
    entries: Vec<Entry>,
    /// The device's clock at one moment.
    clock: (Instant, Timestamp),
}

impl EventLog {
    pub(crate) fn new(now: Instant, clock: Timestamp) -> Self {
        Self { entries: Vec::new(), clock: (now, clock) }
    }

    pub(crate) fn enter(&mut self, at: Instant, app: &str, effect: Effect) {
        let number = self.entries.len() as u64 + 1;
        self.entries.push(Entry { number, at: self.clock(at), app: app.to_owned(), effect });
    }

    /// Converts `at` to the clock of the device.
    pub(crate) fn clock(&self, at: Instant) -> Timestamp {
        let since = SignedDuration::try_from(at.saturating_duration_since(self.clock.0));
        since.ok().and_then(|since| self.clock.1.checked_add(since).ok()).unwrap_or(self.clock.1)
    }

    /// The entries behind number `after`.
    pub(crate) fn entries(&self, after: u64) -> Vec<Entry> {
        self.entries.iter().filter(|entry| entry.number > after).cloned().collect()
    }
}
