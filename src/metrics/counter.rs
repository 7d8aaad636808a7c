//! A number that many threads count up at a time.

use std::sync::atomic::{AtomicU64, Ordering};

use super::shard::Shards;

/// Counts up from 0. To count costs a few nanoseconds, whoever else counts; to read costs more.
#[derive(Debug, Default)]
pub struct Counter(Shards<AtomicU64>);

impl Counter {
    /// One more.
    pub fn increment(&self) {
        self.0.mine().fetch_add(1, Ordering::Relaxed);
    }

    /// How many there were. What is counted meanwhile may or may not be among them.
    pub fn count(&self) -> u64 {
        self.0.all().map(|part| part.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_when_many_threads_count_at_a_time() {
        let counter = Counter::default();
        std::thread::scope(|scope| {
            for _ in 0..40 {
                scope.spawn(|| (0..1000).for_each(|_| counter.increment()));
            }
        });
        assert_eq!(counter.count(), 40_000);
    }
}
