//! Durations in buckets, counted by many threads at a time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::shard::Shards;

/// The upper bounds of the buckets in seconds, each of which belongs to its bucket: 10 µs to 100 s. Past the last one
/// there is one more bucket without a bound.
pub const BOUNDS: [f64; 22] = [
    1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 25.0, 50.0, 100.0,
];

/// The number of buckets.
pub const BUCKETS: usize = BOUNDS.len() + 1;

/// Counts durations. To count one costs some nanoseconds, whoever else counts; to read costs more.
#[derive(Debug, Default)]
pub struct Histogram(Shards<Part>);

#[derive(Debug, Default)]
struct Part {
    buckets: [AtomicU64; BUCKETS],
    nanoseconds: AtomicU64,
}

/// What was counted up to a moment. What was counted meanwhile may be there in part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// How many durations fell into each bucket, and into none before it.
    pub buckets: [u64; BUCKETS],
    /// All durations together.
    pub sum: Duration,
}

impl Histogram {
    /// Counts `time`; more than 584 years are taken as that.
    pub fn observe(&self, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let part = self.0.mine();
        part.buckets[bucket(nanoseconds)].fetch_add(1, Ordering::Relaxed);
        part.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// What was counted until now.
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for part in self.0.all() {
            for (sum, bucket) in snapshot.buckets.iter_mut().zip(&part.buckets) {
                *sum += bucket.load(Ordering::Relaxed);
            }
            snapshot.sum += Duration::from_nanos(part.nanoseconds.load(Ordering::Relaxed));
        }
        snapshot
    }
}

impl Snapshot {
    /// How many durations there were.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

/// The bounds in nanoseconds, and one that nothing exceeds.
const LIMITS: [u64; BUCKETS] = limits();

/// How many bounds are less than each power of two of nanoseconds.
const FIRST: [u8; 64] = first();

/// The bucket of a duration. From one power of two to the next there is at most one bound, so it is found at once.
fn bucket(nanoseconds: u64) -> usize {
    let first = usize::from(FIRST[(nanoseconds | 1).ilog2() as usize]);
    first + usize::from(nanoseconds > LIMITS[first])
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "100 s are 1e11 ns")]
const fn limits() -> [u64; BUCKETS] {
    let mut limits = [u64::MAX; BUCKETS];
    let mut place = 0;
    while place < BOUNDS.len() {
        limits[place] = (BOUNDS[place] * 1e9 + 0.5) as u64;
        place += 1;
    }
    limits
}

const fn first() -> [u8; 64] {
    let (mut first, mut power, mut less) = ([0; 64], 0, 0);
    while power < first.len() {
        while LIMITS[less as usize] < 1 << power {
            less += 1;
        }
        first[power] = less;
        power += 1;
    }
    first
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn buckets(times: impl IntoIterator<Item = Duration>) -> Vec<(usize, u64)> {
        let histogram = Histogram::default();
        times.into_iter().for_each(|time| histogram.observe(time));
        let buckets = histogram.snapshot().buckets.into_iter().enumerate();
        buckets.filter(|(_, count)| *count > 0).collect()
    }

    #[test]
    fn a_bound_belongs_to_its_own_bucket_and_what_is_more_to_the_next() {
        for (place, bound) in BOUNDS.into_iter().enumerate() {
            let bound = Duration::from_secs_f64(bound);
            let more = bound + Duration::from_nanos(1);
            assert_eq!(buckets([bound, more]), [(place, 1), (place + 1, 1)], "{bound:?}");
        }
        assert_eq!(buckets([Duration::ZERO, Duration::MAX]), [(0, 1), (BOUNDS.len(), 1)]);
    }

    #[test]
    fn nothing_is_lost_when_many_threads_count_at_a_time() {
        let histogram = Histogram::default();
        std::thread::scope(|scope| {
            for thread in 0..40 {
                let histogram = &histogram;
                scope.spawn(move || (0..1000).for_each(|_| histogram.observe(Duration::from_millis(thread))));
            }
        });
        let snapshot = histogram.snapshot();
        assert_eq!((snapshot.count(), snapshot.sum), (40_000, Duration::from_secs(39 * 40 / 2)));
    }

    proptest! {
        #[test]
        fn a_duration_falls_into_the_first_bucket_whose_bound_it_does_not_exceed(
            nanoseconds in (0..64_u32, any::<u64>()).prop_map(|(shift, number)| number >> shift),
        ) {
            let expected = LIMITS.iter().position(|limit| nanoseconds <= *limit);
            prop_assert_eq!(Some(bucket(nanoseconds)), expected);
        }
    }
}
