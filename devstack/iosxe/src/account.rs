//! Basic authentication (RFC 7617), with an account that is locked after too many wrong passwords. Pure.

use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The one account of a device.
#[derive(Debug)]
pub(crate) struct Account {
    credentials: String,
    lock_after: Option<u32>,
    lock_time: Duration,
    /// Wrong passwords since the last right one.
    wrong: u32,
    locked_until: Option<Instant>,
    /// The number of refused requests.
    pub(crate) denied: u64,
    /// The number of times the account was locked.
    pub(crate) locks: u64,
}

impl Account {
    pub(crate) fn new(username: &str, password: &str, lock_after: Option<u32>, lock_time: Duration) -> Self {
        let credentials = STANDARD.encode(format!("{username}:{password}"));
        Self { credentials, lock_after, lock_time, wrong: 0, locked_until: None, denied: 0, locks: 0 }
    }

    /// Another password from now on; the lock is taken away.
    pub(crate) fn set(&mut self, username: &str, password: &str) {
        self.credentials = STANDARD.encode(format!("{username}:{password}"));
        self.wrong = 0;
        self.locked_until = None;
    }

    /// Returns `true` if a request with this header is authenticated.
    pub(crate) fn admits(&mut self, authorization: Option<&str>, now: Instant) -> bool {
        let given = authorization.and_then(|header| header.split_once(' '));
        let right = given.is_some_and(|(scheme, credentials)| {
            scheme.eq_ignore_ascii_case("basic") && credentials.trim() == self.credentials
        });
        let locked = self.locked_until.is_some_and(|until| now < until);
        if right && !locked {
            self.wrong = 0;
            self.locked_until = None;
            return true;
        }
        self.denied += 1;
        // A request without credentials is no attempt.
        if given.is_some() && !right && !locked {
            self.wrong += 1;
            if self.lock_after.is_some_and(|most| self.wrong >= most) {
                self.locked_until = Some(now + self.lock_time);
                self.locks += 1;
                self.wrong = 0;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn basic(password: &str) -> String {
        format!("Basic {}", STANDARD.encode(format!("admin:{password}")))
    }

    #[test]
    fn too_many_wrong_passwords_in_a_row_lock_the_account_for_a_while() {
        let now = Instant::now();
        let mut account = Account::new("admin", "right", Some(3), Duration::from_secs(60));
        let mut asks = |password: &str, seconds| {
            account.admits(Some(&basic(password)), now + Duration::from_secs(seconds))
        };
        assert!(!asks("wrong", 0) && !asks("wrong", 0) && asks("right", 0), "two are not three");
        assert!(!asks("wrong", 1) && !asks("wrong", 1) && !asks("wrong", 1));
        assert!(!asks("right", 2), "it is locked");
        assert!(asks("right", 61));
        assert_eq!((account.denied, account.locks), (6, 1));
    }

    #[test]
    fn a_request_without_credentials_is_refused_and_is_no_attempt() {
        let mut account = Account::new("admin", "right", Some(1), Duration::from_secs(60));
        assert!(!account.admits(None, Instant::now()));
        assert!(account.admits(Some(&basic("right")), Instant::now()));
        assert_eq!((account.denied, account.locks), (1, 0));
    }
}
