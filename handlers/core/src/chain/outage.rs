//! Wakes the messages that wait after transient failures once one of them succeeds, because what they waited for works again.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use crate::backoff::random_delay;

/// The time between two attempts of the probe, by which the end of an outage is noticed.
const PROBE_INTERVAL: Duration = Duration::from_secs(15);

/// The time over which the attempts of the woken messages are spread.
const SPREAD: Duration = Duration::from_secs(10);

/// The messages of one handler that wait for their next attempt after a transient failure.
///
/// The one that has waited longest is the probe, which waits no longer than [`PROBE_INTERVAL`] from then on. The next one becomes the
/// probe after it, so that a message that fails for a reason of its own is not the only one that is tried. When an attempt shows that
/// the outage is over, all are woken.
#[derive(Debug, Default)]
pub(super) struct Outage {
    wake: Notify,
    /// Held by the probe, and passed on in order of arrival.
    probe: tokio::sync::Mutex<()>,
    /// The time at which all messages were last woken. If only some calls of a driver fail, messages do not wake each other all the
    /// time.
    ended: Mutex<Option<Instant>>,
}

impl Outage {
    /// Waits until `at`, or until an earlier attempt is worthwhile. The probe waits at least for `delay`, which its error requested.
    pub(super) async fn wait_until(&self, at: Instant, delay: Duration) {
        let probe = async {
            sleep(delay).await;
            let _probe = self.probe.lock().await;
            sleep(PROBE_INTERVAL).await;
        };
        tokio::select! {
            () = sleep_until(at) => {}
            () = probe => {}
            () = self.wake.notified() => sleep_until(at.min(Instant::now() + random_delay(SPREAD))).await,
        }
    }

    /// Wakes all waiting messages, because an attempt after a transient failure did not fail in that way again.
    pub(super) fn end(&self) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if ended.is_none_or(|ended| ended.elapsed() >= PROBE_INTERVAL) {
            *ended = Some(Instant::now());
            self.wake.notify_waiters();
        }
    }
}
