//! Random numbers that depend only on the seed, on the place where they are needed, and on how often that place needed one before. So a
//! fault that is left out does not change the choices of other places.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

/// The random numbers of one seed.
pub(crate) struct Choices {
    seed: u64,
    counts: Mutex<HashMap<String, u64>>,
}

/// A sequence of random numbers.
pub(crate) struct Draw(u64);

impl Choices {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, counts: Mutex::default() }
    }

    /// Returns the next sequence of the place `site`.
    pub(crate) fn at(&self, site: &str) -> Draw {
        let mut counts = self.counts.lock().expect("nothing panics with it");
        let count = counts.entry(site.to_owned()).or_default();
        *count += 1;
        // FNV-1a.
        let hash = site.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Draw(split_mix(&mut (self.seed ^ split_mix(&mut (hash ^ count.rotate_left(32))))))
    }
}

impl Draw {
    fn next(&mut self) -> u64 {
        split_mix(&mut self.0)
    }

    /// Returns a number less than `limit`, which is not 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).expect("it is less than a usize")
    }

    /// Returns `true` in `per_mille` of 1,000 cases.
    pub(crate) fn chance(&mut self, per_mille: usize) -> bool {
        self.below(1000) < per_mille
    }

    /// Returns a time from `from` to `to`, in whole milliseconds.
    pub(crate) fn time(&mut self, from: Duration, to: Duration) -> Duration {
        let spread = usize::try_from(to.saturating_sub(from).as_millis()).expect("it is short");
        from + Duration::from_millis(self.below(spread + 1) as u64)
    }
}

/// The generator `SplitMix64` (Steele, Lea and Flood, 2014): advances `state`, and returns the next number.
pub(crate) fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
