//! A pause after a request that went wrong in a way that the next one would too.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use staffetta_driver::{DriverError, Reason};
use tokio::time::Instant;

/// The pause after the device refused the log-in; it doubles each time. Devices lock an account after a few attempts.
const FIRST_REFUSAL: Duration = Duration::from_secs(30);

/// The longest such pause.
const LONGEST_REFUSAL: Duration = Duration::from_secs(15 * 60);

/// The pause after the device could not be reached: whoever waited behind the request need not find out again.
const OUTAGE: Duration = Duration::from_secs(1);

/// Lets requests through, except during a pause.
#[derive(Debug, Default)]
pub(super) struct Gate(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    closed: Option<(Instant, DriverError)>,
    /// How often in a row the log-in was refused.
    refusals: u32,
    /// Whether the API ever did what it was asked: it knows who we are.
    known: bool,
    /// When the device answered last.
    answered: Option<Instant>,
}

impl Gate {
    /// Whether a request may leave; if not, the error of the one that closed the gate.
    pub(super) fn pass(&self) -> Result<(), DriverError> {
        let state = self.state();
        match &state.closed {
            Some((until, error)) if *until > Instant::now() => {
                Err(error.clone().after(until.saturating_duration_since(Instant::now())))
            }
            _ => Ok(()),
        }
    }

    /// The device answered, and did not refuse the log-in.
    pub(super) fn open(&self) {
        let mut state = self.state();
        *state = State { known: state.known, answered: Some(Instant::now()), ..State::default() };
    }

    /// The API did what it was asked.
    pub(super) fn know(&self) {
        self.state().known = true;
    }

    /// Whether the API ever did what it was asked. What it forbids after that is no question of the log-in.
    pub(super) fn is_known(&self) -> bool {
        self.state().known
    }

    /// When the device answered last.
    pub(super) fn answered(&self) -> Option<Instant> {
        self.state().answered
    }

    /// The device refused the log-in.
    pub(super) fn refused(&self, detail: String) -> DriverError {
        let mut state = self.state();
        let pause = FIRST_REFUSAL.saturating_mul(1 << state.refusals.min(10)).min(LONGEST_REFUSAL);
        state.refusals += 1;
        let error = DriverError::new(Reason::Refused, "log in to the device").detail(detail);
        state.closed = Some((Instant::now() + pause, error.clone()));
        error.after(pause)
    }

    /// The device could not be reached, or did not answer.
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
    async fn a_refused_log_in_is_tried_once_a_pause_and_the_pauses_double_up_to_their_longest() {
        let gate = Gate::default();
        let mut pauses = Vec::new();
        for _ in 0..7 {
            assert!(gate.pass().is_ok());
            pauses.push(gate.refused("HTTP 401".into()).retry_after().unwrap().as_secs());
            tokio::time::advance(Duration::from_secs(pauses[pauses.len() - 1] - 1)).await;
            let error = gate.pass().unwrap_err();
            assert_eq!(
                (error.reason(), error.retry_after()),
                (Reason::Refused, Some(Duration::from_secs(1)))
            );
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(pauses, [30, 60, 120, 240, 480, 900, 900]);
        gate.open();
        assert_eq!(gate.refused(String::new()).retry_after(), Some(FIRST_REFUSAL));
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
