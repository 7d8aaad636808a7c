//! The calls by which ports in stock are made: each has a name, which stands in the mark of its ports.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The calls of one process. Their names are told from those of all others.
#[derive(Clone, Debug)]
pub(super) struct Batches {
    process: Arc<str>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    begun: u64,
    open: BTreeSet<u64>,
}

/// A call under way. It has ended when this is dropped.
#[derive(Debug)]
pub(super) struct Batch {
    batches: Batches,
    number: u64,
}

/// A moment. What calls made that were under way then, or began later, may still change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment(u64);

impl Batches {
    /// The randomness is the one that the standard library gives its hash maps.
    pub(super) fn new() -> Self {
        let process = format!("{:016x}", RandomState::new().hash_one(std::process::id()));
        Self { process: process.into(), state: Arc::default() }
    }

    /// A new call begins.
    pub(super) fn begin(&self) -> Batch {
        let mut state = self.state();
        state.begun += 1;
        let number = state.begun;
        state.open.insert(number);
        Batch { batches: self.clone(), number }
    }

    /// Now.
    pub(super) fn now(&self) -> Moment {
        let state = self.state();
        Moment(state.open.first().copied().unwrap_or(state.begun + 1))
    }

    /// Whether the call of that name had ended before: what it left behind half made stays so. One of another process
    /// counts as ended, for there is one leader.
    pub(super) fn ended(&self, name: &str, before: Moment) -> bool {
        let Some((process, number)) = name.rsplit_once('-') else { return true };
        let number = number.parse::<u64>();
        process != &*self.process || number.is_ok_and(|number| number < before.0)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Batch {
    /// The name.
    pub(super) fn name(&self) -> String {
        format!("{}-{}", self.batches.process, self.number)
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.batches.state().open.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_under_way_at_a_moment_or_began_later_had_not_ended_before() {
        let batches = Batches::new();
        let first = batches.begin().name();
        let second = batches.begin();
        let moment = batches.now();
        let name = second.name();
        drop(second);
        let third = batches.begin().name();
        assert!(batches.ended(&first, moment));
        assert!(!batches.ended(&name, moment) && !batches.ended(&third, moment));
        assert!(batches.ended(&name, batches.now()) && batches.ended(&third, batches.now()));
    }

    #[test]
    fn calls_of_another_process_have_ended() {
        let (batches, others) = (Batches::new(), Batches::new());
        let open = others.begin();
        assert!(batches.ended(&open.name(), batches.now()) && batches.ended("by hand", batches.now()));
        assert_ne!(open.name(), batches.begin().name());
    }
}
