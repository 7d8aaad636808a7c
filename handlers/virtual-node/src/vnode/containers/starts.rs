//! The starts of a container that does not stay loaded.

use std::time::Duration;

use tokio::time::Instant;

use super::failure::BACKOFF;

/// The time since the last start of a container after which its earlier starts do not lengthen the back-off any more, as in kubelets.
const STEADY: Duration = Duration::from_secs(600);

/// The starts of a container with one image, each less than [`STEADY`] after the one before.
#[derive(Debug)]
pub(super) struct Starts {
    image: String,
    count: u32,
    last: Instant,
    /// The earliest time of the next start.
    next: Instant,
}

impl Starts {
    /// Returns the record of a further start with this image. It continues the record `earlier` if that has the same image and its last
    /// start was less than [`STEADY`] ago.
    pub(super) fn after(earlier: Option<Self>, image: &str, now: Instant) -> Self {
        let earlier = earlier.filter(|earlier| earlier.image == image && earlier.still_count_at(now));
        let earlier = earlier.map_or(0, |earlier| earlier.count);
        // The second start follows at once.
        let delay = earlier.checked_sub(1).map(|repeated| BACKOFF.requeue_delay(repeated, None));
        let next = now + delay.unwrap_or_default();
        Self { image: image.to_owned(), count: earlier.saturating_add(1), last: now, next }
    }

    /// Returns `true` while these starts lengthen the back-off: for [`STEADY`] after the last one.
    pub(super) fn still_count_at(&self, now: Instant) -> bool {
        now < self.last + STEADY
    }

    /// Returns the number of starts and the delay before the next one with this image; `None` if it may follow now.
    pub(super) fn delay(&self, image: &str, now: Instant) -> Option<(u32, Duration)> {
        (self.image == image && now < self.next).then(|| (self.count, self.next - now))
    }
}
