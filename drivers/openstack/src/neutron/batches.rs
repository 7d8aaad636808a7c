//! The bulk requests of this process that create pooled ports. Each has a name that is part of the ownership
//! mark of its ports, so that a listing can tell whether a port may still be under construction.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};

use parking_lot::Mutex;

/// The registry of the bulk requests by which this process creates pooled ports. It gives each a name that no other process uses, and
/// records which of them are in flight.
#[derive(Debug)]
pub(super) struct BatchRegistry {
    /// The random name of this process, with which the names of its requests begin.
    process: String,
    numbers: Mutex<BatchNumbers>,
}

/// The numbers of the bulk requests: the last one that was started, and those in flight.
#[derive(Debug, Default)]
struct BatchNumbers {
    last: u64,
    in_flight: BTreeSet<u64>,
}

/// A bulk request in flight. Dropping it records the end of the request.
#[derive(Debug)]
pub(super) struct Batch<'a> {
    registry: &'a BatchRegistry,
    number: u64,
}

/// A point in time, as the lowest number of a bulk request that had not ended by then. The ports of this request and of those with higher
/// numbers may still change.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchCutoff(u64);

impl BatchRegistry {
    /// Creates the registry with a random process name. The randomness is that of the standard library's hash maps.
    pub(super) fn new() -> Self {
        let process = format!("{:016x}", RandomState::new().hash_one(std::process::id()));
        Self { process, numbers: Mutex::default() }
    }

    /// Registers a bulk request, which the caller is about to send, as in flight, with a new name.
    pub(super) fn begin(&self) -> Batch<'_> {
        let mut numbers = self.numbers.lock();
        numbers.last += 1;
        let number = numbers.last;
        numbers.in_flight.insert(number);
        Batch { registry: self, number }
    }

    /// Returns the present time as a cutoff: the lowest number of a bulk request in flight or, if there is none, the number of the next
    /// one.
    pub(super) fn cutoff(&self) -> BatchCutoff {
        let numbers = self.numbers.lock();
        BatchCutoff(numbers.in_flight.first().copied().unwrap_or(numbers.last + 1))
    }

    /// Returns `true` if the bulk request with this name had ended before the cutoff, so that its incomplete ports stay incomplete. The
    /// requests of other processes count as ended, because only the leader makes requests.
    pub(super) fn has_ended(&self, name: &str, cutoff: BatchCutoff) -> bool {
        let Some((process, number)) = name.rsplit_once('-') else { return true };
        let number = number.parse::<u64>();
        process != self.process || number.is_ok_and(|number| number < cutoff.0)
    }
}

impl Batch<'_> {
    /// Returns the name of the request: the name of the process, `-` and a number.
    pub(super) fn name(&self) -> String {
        format!("{}-{}", self.registry.process, self.number)
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.registry.numbers.lock().in_flight.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_under_way_at_a_moment_or_began_later_had_not_ended_before() {
        let batches = BatchRegistry::new();
        let first = batches.begin().name();
        let second = batches.begin();
        let moment = batches.cutoff();
        let name = second.name();
        drop(second);
        let third = batches.begin().name();
        assert!(batches.has_ended(&first, moment));
        assert!(!batches.has_ended(&name, moment) && !batches.has_ended(&third, moment));
        assert!(batches.has_ended(&name, batches.cutoff()) && batches.has_ended(&third, batches.cutoff()));
    }

    #[test]
    fn calls_of_another_process_have_ended() {
        let (batches, others) = (BatchRegistry::new(), BatchRegistry::new());
        let open = others.begin();
        assert!(
            batches.has_ended(&open.name(), batches.cutoff())
                && batches.has_ended("by hand", batches.cutoff())
        );
        assert_ne!(open.name(), batches.begin().name());
    }
}
