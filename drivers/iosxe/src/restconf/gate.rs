//! Makes requests fail at once for a time after a failure that the next request would repeat.

use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use staffetta_driver::{DriverError, Reason};
use tokio::time::Instant;

/// The time for which requests fail at once after the device refused the log-in. Devices lock an account after a few attempts.
const REFUSAL: Duration = Duration::from_secs(30);

/// The time for which requests fail at once after the device could not be reached. Requests that waited for the failed one fail at once,
/// too.
const OUTAGE: Duration = Duration::from_secs(1);

/// A gate that all requests to a device pass. After a refused log-in, or if the device cannot be reached, it is shut for a time: requests
/// then fail at once with the error of that failure.
#[derive(Debug, Default)]
pub(super) struct Gate(Mutex<GateState>);

/// The state of a [`Gate`].
#[derive(Debug, Default)]
struct GateState {
    /// The time until which requests fail, and the error that they get; `None` if requests pass.
    closed: Option<(Instant, DriverError)>,
    /// `true` if the API has answered a request with a success status.
    succeeded: bool,
    /// The time of the last response of the device, other than a refused log-in; `None` before the first.
    answered: Option<Instant>,
}

impl Gate {
    /// Returns an error while requests must not be sent: that of the failure that closed the gate, with the remaining time as the delay.
    pub(super) fn check(&self) -> Result<(), DriverError> {
        let state = self.state();
        match &state.closed {
            Some((until, error)) if *until > Instant::now() => {
                Err(error.clone().after(until.saturating_duration_since(Instant::now())))
            }
            _ => Ok(()),
        }
    }

    /// Lets requests pass again, and records the time, after a response other than a refused log-in.
    pub(super) fn open(&self) {
        let mut state = self.state();
        *state =
            GateState { succeeded: state.succeeded, answered: Some(Instant::now()), ..GateState::default() };
    }

    /// Records that the API has answered a request with a success status, which proves that the credentials are valid.
    pub(super) fn record_success(&self) {
        self.state().succeeded = true;
    }

    /// Returns `true` if the API has answered a request with a success status. The status 403 of a later response is then not caused by the
    /// credentials.
    pub(super) fn has_succeeded(&self) -> bool {
        self.state().succeeded
    }

    /// Returns the time of the last response of the device, other than a refused log-in; `None` before the first.
    pub(super) fn answered(&self) -> Option<Instant> {
        self.state().answered
    }

    /// Makes requests fail for [`REFUSAL`] after a refused log-in, and returns the error for the request that was refused.
    pub(super) fn close_after_refusal(&self, detail: String) -> DriverError {
        let error = DriverError::new(Reason::Refused, "log in to the device").detail(detail);
        self.state().closed = Some((Instant::now() + REFUSAL, error.clone()));
        error.after(REFUSAL)
    }

    /// Makes requests fail for [`OUTAGE`] with `error`, the failure of a request to an unreachable device.
    pub(super) fn close_after_outage(&self, error: &DriverError) {
        self.state().closed = Some((Instant::now() + OUTAGE, error.clone()));
    }

    fn state(&self) -> MutexGuard<'_, GateState> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_refused_log_in_is_tried_once_a_pause_and_who_asks_meanwhile_learns_what_is_left_of_it() {
        let gate = Gate::default();
        for _ in 0..2 {
            assert!(gate.check().is_ok());
            assert_eq!(gate.close_after_refusal("HTTP 401".into()).retry_after(), Some(REFUSAL));
            tokio::time::advance(Duration::from_secs(29)).await;
            let error = gate.check().unwrap_err();
            let left = Some(Duration::from_secs(1));
            assert_eq!((error.reason(), error.retry_after()), (Reason::Refused, left));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waited_behind_an_outage_fails_at_once_and_later_ones_try() {
        let gate = Gate::default();
        gate.close_after_outage(&DriverError::new(Reason::Unavailable, "ask"));
        assert_eq!(gate.check().unwrap_err().reason(), Reason::Unavailable);
        tokio::time::advance(OUTAGE).await;
        assert!(gate.check().is_ok());
    }
}
