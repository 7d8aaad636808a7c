//! Exponential delays between failed logins, by the crate `backoff`. Pure functions, which get the current time as an argument.
//!
//! Every call needs a token. Without a delay, a wrong password would be sent to Keystone with every call, and Keystone may lock the user.

use std::time::Duration;

use backoff::backoff::Backoff as _;
use backoff::{ExponentialBackoff, ExponentialBackoffBuilder};
use staffetta_driver::Reason;
use tokio::time::Instant;

use crate::error::{OpenStackError, Result};

/// The delay after the first failed login. It doubles with each further failed login.
const INITIAL_DELAY: Duration = Duration::from_secs(1);
/// The longest delay after Keystone rejected a login.
const MAX_DELAY_REJECTED: Duration = Duration::from_secs(60);
/// The longest delay after a failure that is no rejection, such as that of an unreachable Keystone.
const MAX_DELAY_UNAVAILABLE: Duration = Duration::from_secs(5);

/// The last login failure, and the delay before the next login.
#[derive(Debug)]
pub(super) struct LoginBackoff {
    delays: ExponentialBackoff,
    last: Option<(OpenStackError, Instant)>,
}

impl Default for LoginBackoff {
    fn default() -> Self {
        let delays = ExponentialBackoffBuilder::new()
            .with_initial_interval(INITIAL_DELAY)
            .with_max_interval(MAX_DELAY_REJECTED)
            .with_multiplier(2.0)
            .with_randomization_factor(0.0)
            .with_max_elapsed_time(None)
            .build();
        Self { delays, last: None }
    }
}

impl LoginBackoff {
    /// Returns `Ok` if a login may be tried now. During the delay after a failed login, returns the error of that login with the remaining
    /// delay.
    pub(super) fn check(&self, now: Instant) -> Result<()> {
        match &self.last {
            Some((error, until)) if now < *until => Err(error.clone().after(*until - now)),
            _ => Ok(()),
        }
    }

    /// Records a failed login, and returns its error with the delay before the next login. A delay that Keystone requested is a minimum.
    pub(super) fn failed(&mut self, error: OpenStackError, now: Instant) -> OpenStackError {
        let max = if error.reason() == Reason::Refused { MAX_DELAY_REJECTED } else { MAX_DELAY_UNAVAILABLE };
        let delay = self.delays.next_backoff().unwrap_or(max).min(max);
        let delay = delay.max(error.retry_after().unwrap_or_default());
        let error = error.after(delay);
        self.last = Some((error.clone(), now + delay));
        error
    }

    /// Records a successful login, after which no delay applies.
    pub(super) fn succeeded(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delays(error: &OpenStackError) -> Vec<u64> {
        let mut backoff = LoginBackoff::default();
        let mut delays = Vec::new();
        let mut now = Instant::now();
        for _ in 0..8 {
            backoff.check(now).unwrap();
            let error = backoff.failed(error.clone(), now);
            let delay = error.retry_after().unwrap();
            let half = delay / 2;
            now += half;
            assert_eq!(backoff.check(now).unwrap_err().retry_after(), Some(half));
            now += half;
            delays.push(delay.as_secs());
        }
        delays
    }

    #[tokio::test(start_paused = true)]
    async fn delays_double_up_to_a_minute_after_rejections_and_to_five_seconds_in_an_outage() {
        assert_eq!(delays(&OpenStackError::rejected("log in", 401, b"")), [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(delays(&OpenStackError::unavailable("log in", "")), [1, 2, 4, 5, 5, 5, 5, 5]);
    }
}
