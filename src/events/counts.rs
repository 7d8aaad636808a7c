//! What became of Events, in figures.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What became of Events since the start of the process.
#[derive(Debug, Default)]
pub(crate) struct EventCounts {
    created: AtomicU64,
    updated: AtomicU64,
    dropped: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
}

/// What became of an Event or of a request for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventResult {
    /// An Event was made.
    Created,
    /// An Event was brought up to date.
    Updated,
    /// An occurrence was told to nobody: too much happened at once.
    Dropped,
    /// The server does not want an Event, and will not.
    Refused,
    /// A request failed and is repeated.
    Failed,
}

impl EventResult {
    /// All of them.
    const ALL: [Self; 5] = [Self::Created, Self::Updated, Self::Dropped, Self::Refused, Self::Failed];

    /// The word for it, as a metric's label.
    fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Dropped => "dropped",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

impl EventCounts {
    /// How often it came to what.
    pub(crate) fn counts(&self) -> [(&'static str, u64); EventResult::ALL.len()] {
        EventResult::ALL.map(|result| (result.name(), self.counter(result).load(Relaxed)))
    }

    pub(crate) fn count(&self, result: EventResult) {
        self.counter(result).fetch_add(1, Relaxed);
    }

    fn counter(&self, result: EventResult) -> &AtomicU64 {
        match result {
            EventResult::Created => &self.created,
            EventResult::Updated => &self.updated,
            EventResult::Dropped => &self.dropped,
            EventResult::Refused => &self.refused,
            EventResult::Failed => &self.failed,
        }
    }
}
