//! The wait for the first answer of a base, without I/O.

use std::time::Duration;

use staffetta_handler::BackoffPolicy;
use tokio::time::Instant;

/// The delays between two health requests.
const BACKOFF: BackoffPolicy = BackoffPolicy::unlimited(Duration::from_secs(2), Duration::from_secs(60));

/// The wait for the first answer of a base that introduces itself and has no node. A base that reports and cannot be reached would
/// otherwise get a node and lose it, again and again.
#[derive(Debug)]
pub(super) struct FirstAnswer {
    /// The number of health requests that were sent.
    asked: u32,
    /// The time of the next health request.
    due: Instant,
}

impl FirstAnswer {
    /// Begins to wait. The first health request is due at once.
    pub(super) fn new(now: Instant) -> Self {
        Self { asked: 0, due: now }
    }

    /// Returns the number, from 1, of the health request that is due, and schedules the next one; `None` if no request is due.
    pub(super) fn question(&mut self, now: Instant) -> Option<u32> {
        if now < self.due {
            return None;
        }
        self.due = now + BACKOFF.requeue_delay(self.asked, None);
        self.asked = self.asked.saturating_add(1);
        Some(self.asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_is_asked_at_once_and_then_less_and_less_often() {
        let now = Instant::now();
        let mut wait = FirstAnswer::new(now);
        assert_eq!((wait.question(now), wait.question(now)), (Some(1), None));
        let asked = (1..600).filter_map(|second| wait.question(now + Duration::from_secs(second)));
        let most = u32::try_from(asked.count()).unwrap();
        assert!((8..20).contains(&most), "{most}");
    }
}
