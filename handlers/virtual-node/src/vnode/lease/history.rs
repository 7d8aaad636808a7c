//! The versions of objects that this process has seen, by which it proves that nobody held a Lease recently.

use std::collections::VecDeque;
use std::time::Duration;

use staffetta_handler::BootTime;

/// The minimum time between two recorded versions.
const RESOLUTION: Duration = Duration::from_secs(1);

/// The resourceVersions in responses to the writes of Leases, with the time of each response.
#[derive(Debug, Default)]
pub(in crate::vnode) struct VersionHistory(VecDeque<(BootTime, u64)>);

impl VersionHistory {
    /// Records the version in a response at the time `now`. A lower one than before is that of a cluster that was restored from a backup.
    pub(in crate::vnode) fn record(&mut self, version: u64, now: BootTime) {
        if self.0.back().is_some_and(|(_, last)| version < *last) {
            self.0.clear();
        }
        if self.0.back().is_none_or(|(at, _)| now >= *at + RESOLUTION) {
            self.0.push_back((now, version));
        }
    }

    /// Returns the newest version that existed at the time `now - age`; `None` if none was recorded by then. Older ones are forgotten.
    pub(in crate::vnode) fn before(&mut self, age: Duration, now: BootTime) -> Option<u64> {
        while self.0.get(1).is_some_and(|(at, _)| *at + age <= now) {
            self.0.pop_front();
        }
        self.0.front().filter(|(at, _)| *at + age <= now).map(|(_, version)| *version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_of_a_past_time_is_returned_and_those_of_another_history_are_forgotten() {
        let (mut history, age) = (VersionHistory::default(), Duration::from_secs(40));
        let at = |seconds| BootTime::default() + Duration::from_secs(seconds);
        for (version, seconds) in [(7, 100), (8, 110), (9, 120)] {
            history.record(version, at(seconds));
        }
        let found = [139, 140, 149, 150, 999].map(|seconds| history.before(age, at(seconds)));
        assert_eq!(found, [None, Some(7), Some(7), Some(8), Some(9)]);
        history.record(3, at(1000));
        assert_eq!(history.before(age, at(1039)), None);
        assert_eq!(history.before(age, at(1040)), Some(3));
    }
}
