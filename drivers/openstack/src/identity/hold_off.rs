//! How long a login is not tried again after it failed: a function of time.
//!
//! Every call needs a token, so a wrong password would be sent with every call: Keystone may lock the user out for that, and
//! its log would be full of it.

use std::time::Duration;

use staffetta_driver::Reason;
use tokio::time::Instant;

use crate::error::OpenStackError;

/// The first wait, which doubles with each failure.
const FIRST: Duration = Duration::from_secs(1);
/// The longest wait after Keystone said no.
const LONGEST_REFUSED: Duration = Duration::from_secs(60);
/// The longest wait after Keystone could not be asked: it may be there again at any moment.
const LONGEST_UNAVAILABLE: Duration = Duration::from_secs(5);

/// Knows since when logins fail.
#[derive(Debug, Default)]
pub(super) struct HoldOff {
    failures: u32,
    last: Option<(OpenStackError, Instant)>,
}

impl HoldOff {
    /// The last failure, while no other login is to be tried; it says when one is.
    pub(super) fn check(&self, now: Instant) -> Result<(), OpenStackError> {
        match &self.last {
            Some((error, until)) if now < *until => Err(error.clone().after(Some(*until - now))),
            _ => Ok(()),
        }
    }

    /// A login failed. The answer says when another one is to be tried.
    pub(super) fn failed(&mut self, error: OpenStackError, now: Instant) -> OpenStackError {
        let longest = if error.reason() == Reason::Refused { LONGEST_REFUSED } else { LONGEST_UNAVAILABLE };
        let wait = FIRST.saturating_mul(1 << self.failures.min(16)).min(longest);
        let wait = wait.max(error.retry_after().unwrap_or_default());
        self.failures += 1;
        let error = error.after(Some(wait));
        self.last = Some((error.clone(), now + wait));
        error
    }

    /// A login succeeded.
    pub(super) fn succeeded(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Problem, refused};

    fn waits(problem: &Problem) -> Vec<u64> {
        let mut hold_off = HoldOff::default();
        let mut waits = Vec::new();
        let mut now = Instant::now();
        for _ in 0..8 {
            hold_off.check(now).unwrap();
            let error = hold_off.failed(OpenStackError::new("log in", problem.clone()), now);
            let wait = error.retry_after().unwrap();
            let half = wait / 2;
            now += half;
            assert_eq!(hold_off.check(now).unwrap_err().retry_after(), Some(half));
            now += half;
            waits.push(wait.as_secs());
        }
        waits
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_login_is_tried_ever_more_seldom_and_an_outage_ends_soon_enough() {
        assert_eq!(waits(&refused(401, b"")), [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(waits(&Problem::Unreachable(String::new())), [1, 2, 4, 5, 5, 5, 5, 5]);
    }
}
