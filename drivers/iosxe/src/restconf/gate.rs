//! A pause after a request that went wrong in a way that the next one would too.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use staffetta_driver::{DriverError, Reason};
use tokio::time::Instant;

/// The pause after the device refused the log-in: devices lock an account after a few attempts.
const REFUSAL: Duration = Duration::from_secs(30);

/// The pause after the device could not be reached: whoever waited behind the request need not find out again.
const OUTAGE: Duration = Duration::from_secs(1);

/// Lets requests through, except during a pause.
#[derive(Debug, Default)]
pub(super) struct Gate(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    closed: Option<(Instant, DriverError)>,
    /// `true` if the API ever completed a request: the credentials are valid.
    known: bool,
    /// The time of the device's last answer.
    answered: Option<Instant>,
}

impl Gate {
    /// Returns the error of the request that closed the gate, if it is closed.
    pub(super) fn pass(&self) -> Result<(), DriverError> {
        let state = self.state();
        match &state.closed {
            Some((until, error)) if *until > Instant::now() => {
                Err(error.clone().after(until.saturating_duration_since(Instant::now())))
            }
            _ => Ok(()),
        }
    }

    /// Records that the device answered, other than by a refused log-in.
    pub(super) fn open(&self) {
        let mut state = self.state();
        *state = State { known: state.known, answered: Some(Instant::now()), ..State::default() };
    }

    /// Records that the API completed a request.
    pub(super) fn know(&self) {
        self.state().known = true;
    }

    /// Returns `true` if the API ever completed a request. A later refusal is then not caused by the credentials.
    pub(super) fn is_known(&self) -> bool {
        self.state().known
    }

    /// The time of the device's last answer.
    pub(super) fn answered(&self) -> Option<Instant> {
        self.state().answered
    }

    /// Closes the gate after a refused log-in, and returns the error.
    pub(super) fn refused(&self, detail: String) -> DriverError {
        let error = DriverError::new(Reason::Refused, "log in to the device").detail(detail);
        self.state().closed = Some((Instant::now() + REFUSAL, error.clone()));
        error.after(REFUSAL)
    }

    /// Closes the gate after an unreachable device.
    pub(super) fn outage(&self, error: &DriverError) {
        self.state().closed = Some((Instant::now() + OUTAGE, error.clone()));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_refused_log_in_is_tried_once_a_pause_and_who_asks_meanwhile_is_told_what_is_left_of_it() {
        let gate = Gate::default();
        for _ in 0..2 {
            assert!(gate.pass().is_ok());
            assert_eq!(gate.refused("HTTP 401".into()).retry_after(), Some(REFUSAL));
            tokio::time::advance(Duration::from_secs(29)).await;
            let error = gate.pass().unwrap_err();
            let left = Some(Duration::from_secs(1));
            assert_eq!((error.reason(), error.retry_after()), (Reason::Refused, left));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waited_behind_an_outage_is_told_at_once_and_later_ones_try() {
        let gate = Gate::default();
        gate.outage(&DriverError::new(Reason::Unavailable, "ask"));
        assert_eq!(gate.pass().unwrap_err().reason(), Reason::Unavailable);
        tokio::time::advance(OUTAGE).await;
        assert!(gate.pass().is_ok());
    }
}
