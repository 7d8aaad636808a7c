//! Wakes the messages that wait after transient failures once one of them succeeds, because what they waited for works again.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use crate::backoff::random_delay;

/// The time after which one of the waiting messages is tried early, as a probe that shows if the outage is over.
const PROBE_INTERVAL: Duration = Duration::from_secs(15);

/// The time over which the attempts of the woken messages are spread.
const SPREAD: Duration = Duration::from_secs(10);

/// The messages (events or triggers) of one handler that wait for their next attempt after a transient failure.
///
/// The message that has waited longest is the probe: it is tried after [`PROBE_INTERVAL`], and the next message becomes the probe. So the
/// probe is not always the same message, which may fail for a reason of its own. When an attempt shows that the outage is over, all
/// messages are woken.
#[derive(Debug, Default)]
pub(super) struct Outage {
    wake: Notify,
    /// Locked by the message that is the probe. The lock passes to the next message in order of arrival.
    probe: tokio::sync::Mutex<()>,
    /// The time at which an outage last ended, and all waiting messages were woken to be retried. It limits how often that happens while
    /// only some calls of a driver fail.
    ended: Mutex<Option<Instant>>,
}

impl Outage {
    /// Waits until `at` or, if that is earlier, until this message is the probe and its time has come, or until up to [`SPREAD`] after all
    /// messages are woken. The probe waits at least for `delay`, which its error requested.
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

    /// Wakes all waiting messages, because an attempt after a transient failure succeeded or failed permanently. Does nothing if they
    /// were woken less than [`PROBE_INTERVAL`] ago.
    pub(super) fn end(&self) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if ended.is_none_or(|ended| ended.elapsed() >= PROBE_INTERVAL) {
            *ended = Some(Instant::now());
            self.wake.notify_waiters();
        }
    }
}
