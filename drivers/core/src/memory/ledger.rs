//! What was asked of a driver.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// How many calls are remembered. A world that runs for weeks must not grow for weeks.
const REMEMBERED: usize = 10_000;

/// The last ten thousand calls of a driver, oldest first.
#[derive(Debug)]
pub struct Ledger<C>(Mutex<VecDeque<C>>);

impl<C> Default for Ledger<C> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<C: Clone> Ledger<C> {
    /// Writes a call down.
    pub fn record(&self, call: C) {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if calls.len() == REMEMBERED {
            calls.pop_front();
        }
        calls.push_back(call);
    }

    /// The calls so far.
    pub fn calls(&self) -> Vec<C> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_calls_are_remembered() {
        let ledger = Ledger::default();
        for call in 0..=REMEMBERED {
            ledger.record(call);
        }
        let calls = ledger.calls();
        assert_eq!((calls.len(), calls.first(), calls.last()), (REMEMBERED, Some(&1), Some(&REMEMBERED)));
    }
}
