//! Reckoning with times that may be out of reach.

use std::time::Duration;

use tokio::time::Instant;

/// The time that comes `delay` after `since`; a year after it, where that is out of reach.
pub(crate) fn after(since: Instant, delay: Duration) -> Instant {
    since.checked_add(delay).unwrap_or_else(|| since + Duration::from_secs(86_400 * 365))
}
