//! The latest events of the store, from which watches are served and earlier states are derived.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::object::{Key, Object};

/// One write. `before` is absent for a creation, `after` for a removal.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) revision: u64,
    pub(crate) resource: Arc<str>,
    pub(crate) key: Key,
    pub(crate) before: Option<Object>,
    pub(crate) after: Option<Object>,
}

/// The revision asked for is older than the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expired {
    /// The oldest revision that can still be asked for.
    pub(crate) oldest: u64,
}

/// Revisions follow each other without a gap, so that a place in the log is a subtraction.
pub(super) struct EventLog {
    capacity: usize,
    events: VecDeque<Event>,
    /// The revision of the newest event that was dropped.
    trimmed: u64,
}

impl EventLog {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), events: VecDeque::new(), trimmed: 0 }
    }

    pub(super) fn push(&mut self, event: Event) {
        if self.events.len() == self.capacity
            && let Some(dropped) = self.events.pop_front()
        {
            self.trimmed = dropped.revision;
        }
        self.events.push_back(event);
    }

    pub(super) fn after(&self, revision: u64) -> Result<impl DoubleEndedIterator<Item = &Event>, Expired> {
        let Some(skip) = revision.checked_sub(self.trimmed) else {
            return Err(Expired { oldest: self.trimmed });
        };
        let skip = usize::try_from(skip).unwrap_or(usize::MAX).min(self.events.len());
        Ok(self.events.range(skip..))
    }

    pub(super) fn trim(&mut self, revision: u64) {
        self.events.clear();
        self.trimmed = revision;
    }
}
