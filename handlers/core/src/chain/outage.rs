//! Wakes the messages that wait after transient failures once one of them succeeds, because what they waited for works again.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::retry_state::deadline;
use crate::backoff::random_delay;

/// The longest time without an attempt while messages wait after transient failures, so that the end of an outage is noticed.
const PROBE_INTERVAL: Duration = Duration::from_secs(20);

/// The time over which the attempts of the woken messages are spread.
const SPREAD: Duration = Duration::from_secs(10);

/// The messages of one handler that wait for their next attempt after a transient failure.
///
/// One of them, the probe, waits at most [`PROBE_INTERVAL`]. It then takes the message along that has waited longest, so that a message
/// that fails for a reason of its own is not the only one that is tried. When an attempt shows that the outage is over, all are woken.
#[derive(Debug, Default)]
pub(super) struct Outage {
    wake: Notify,
    waiting: AtomicUsize,
    /// Set while a waiting message is the probe.
    has_probe: AtomicBool,
    /// The time at which all messages were last woken. If only some calls of a driver fail, messages do not wake each other all the
    /// time.
    ended: Mutex<Option<Instant>>,
}

impl Outage {
    /// Waits until `at`, or until an earlier attempt is worthwhile. The probe waits at least for `delay`, which its error requested.
    pub(super) async fn wait_until(&self, at: Instant, delay: Duration) {
        let waiting = Waiting::begin(self);
        let until =
            if waiting.is_probe { at.min(deadline(Instant::now(), delay.max(PROBE_INTERVAL))) } else { at };
        tokio::select! {
            () = tokio::time::sleep_until(until) => {
                // Without another message, the notification would be kept for the next one.
                if waiting.is_probe && self.waiting.load(SeqCst) > 1 {
                    self.wake.notify_one();
                }
            }
            () = self.wake.notified() => {
                tokio::time::sleep_until(at.min(Instant::now() + random_delay(SPREAD))).await;
            }
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

/// A message that waits.
struct Waiting<'o> {
    outage: &'o Outage,
    is_probe: bool,
}

impl<'o> Waiting<'o> {
    fn begin(outage: &'o Outage) -> Self {
        outage.waiting.fetch_add(1, SeqCst);
        Self { outage, is_probe: !outage.has_probe.swap(true, SeqCst) }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.outage.waiting.fetch_sub(1, SeqCst);
        if self.is_probe {
            self.outage.has_probe.store(false, SeqCst);
        }
    }
}
