//! Counts the reports of bases that were dropped. However many there are, one log line a minute tells it.

use tracing::debug;

use super::message::DropReason;

/// Counts of the dropped reports, and the latest one, for log lines and metrics.
#[derive(Debug, Default)]
pub(super) struct DroppedReports {
    /// The number of all dropped reports.
    total: u64,
    /// The number of dropped reports that earlier log lines have counted.
    logged: u64,
    /// The topic of the latest dropped report, and the reason; `None` if none was dropped since the last call of [`take`](Self::take).
    latest: Option<(String, String)>,
}

impl DroppedReports {
    /// Records a dropped report.
    pub(super) fn record(&mut self, topic: &[u8], reason: DropReason) {
        let topic = String::from_utf8_lossy(topic);
        let topic = crate::wire::message(&topic).chars().take(256).collect::<String>();
        debug!(topic, reason, "a report of a base is dropped");
        self.total += 1;
        self.latest = Some((topic, reason));
    }

    /// Returns the number of reports that were dropped.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Returns the number of reports that were dropped since the last call, with the topic and the reason of
    /// the latest one; `None` if there are none.
    pub(super) fn take(&mut self) -> Option<(u64, String, String)> {
        let (topic, reason) = self.latest.take()?;
        let before = std::mem::replace(&mut self.logged, self.total);
        Some((self.total - before, topic, reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_dropped_reports_are_one_line_with_the_latest_reason() {
        let mut dropped = DroppedReports::default();
        assert_eq!(dropped.take(), None);
        dropped.record(b"a", "first".to_owned());
        dropped.record(b"b\n\xff", "late".to_owned());
        let (count, topic, reason) = dropped.take().unwrap();
        assert_eq!((count, topic.as_str()), (2, "b \u{fffd}"));
        assert_eq!(reason, "late");
        assert_eq!(dropped.take(), None);
        dropped.record(b"c", "first".to_owned());
        assert_eq!(dropped.take().map(|(count, ..)| count), Some(1));
        assert_eq!(dropped.total(), 3);
    }
}
