//! A Keystone token with its lifetime.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use reqwest::header::{HeaderName, HeaderValue};
use serde::Deserialize;
use tokio::time::Instant;

use super::catalogue::Catalogue;
use crate::service_kind::ServiceKind;

/// A token is renewed this long before it expires, but not before half of its lifetime has passed.
const RENEWAL_MARGIN: Duration = Duration::from_secs(60);

/// The header that carries a token.
const AUTH_TOKEN: HeaderName = HeaderName::from_static("x-auth-token");

/// A Keystone token and the catalogue that came with it. The empty token is used if the services need no token.
#[derive(Debug, Default)]
pub(crate) struct Token {
    value: Option<HeaderValue>,
    /// The service catalogue that came with the token.
    pub(crate) catalogue: Catalogue,
    lifetime: Option<TokenLifetime>,
    /// For each service, `true` if it has accepted the token.
    accepted: [AtomicBool; ServiceKind::COUNT],
}

/// The lifetime of a token, on the clock of this process.
#[derive(Clone, Copy, Debug)]
struct TokenLifetime {
    start: Instant,
    length: Duration,
}

/// The body of Keystone's response to a login.
#[derive(Deserialize)]
pub(super) struct TokenBody {
    token: TokenFields,
}

/// The fields of a token in Keystone's response.
#[derive(Deserialize)]
struct TokenFields {
    issued_at: Timestamp,
    expires_at: Timestamp,
    #[serde(default)]
    catalog: Catalogue,
}

impl Token {
    /// Returns the empty token, which does not expire and counts as accepted by every service.
    pub(super) fn none() -> Self {
        Self { accepted: [true; ServiceKind::COUNT].map(AtomicBool::new), ..Self::default() }
    }

    /// Creates the token of a login request that was sent at `start`. Its lifetime is the difference of two times of Keystone's clock, so
    /// that the local clock may be wrong.
    pub(super) fn new(mut value: HeaderValue, body: TokenBody, start: Instant) -> Self {
        value.set_sensitive(true);
        let length = body.token.expires_at.duration_since(body.token.issued_at);
        let lifetime = TokenLifetime { start, length: length.try_into().unwrap_or_default() };
        let (value, catalogue) = (Some(value), body.token.catalog);
        Self { value, catalogue, lifetime: Some(lifetime), ..Self::default() }
    }

    /// Returns the header `X-Auth-Token` that requests carry, or `None` for the empty token.
    pub(crate) fn header(&self) -> Option<(HeaderName, HeaderValue)> {
        self.value.clone().map(|value| (AUTH_TOKEN, value))
    }

    /// Records that `service` has accepted the token.
    pub(crate) fn set_accepted(&self, service: ServiceKind) {
        self.accepted[service as usize].store(true, Ordering::Relaxed);
    }

    /// Returns `true` if the service has accepted this token before. A rejection then means that the token
    /// was revoked.
    pub(super) fn was_accepted(&self, service: ServiceKind) -> bool {
        self.accepted[service as usize].load(Ordering::Relaxed)
    }

    /// Returns `true` if the token is to be renewed: half of its lifetime has passed, and at most 60 s of it remain. The empty token is
    /// never renewed.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.lifetime.is_some_and(|TokenLifetime { start, length }| {
            now >= start + (length / 2).max(length.saturating_sub(RENEWAL_MARGIN))
        })
    }

    /// Returns `true` if the token has expired at the time `now`. The empty token never expires.
    pub(super) fn has_expired(&self, now: Instant) -> bool {
        self.lifetime.is_some_and(|lifetime| now >= lifetime.start + lifetime.length)
    }

    /// Returns the time since the login, or zero for the empty token.
    pub(super) fn age(&self, now: Instant) -> Duration {
        self.lifetime.map_or(Duration::ZERO, |lifetime| now.saturating_duration_since(lifetime.start))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn token(expires_at: &str) -> Token {
        let reported =
            json!({ "token": { "issued_at": "2026-01-01T00:00:00.000000Z", "expires_at": expires_at } });
        let reported = serde_json::from_value(reported).unwrap();
        Token::new(HeaderValue::from_static("secret"), reported, Instant::now())
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_is_renewed_a_minute_before_it_expires_whatever_our_clock_says() {
        let token = token("2026-01-01T01:00:00.000000Z");
        assert!(!token.is_due(Instant::now()));
        tokio::time::advance(Duration::from_secs(59 * 60 - 1)).await;
        assert!(!token.is_due(Instant::now()));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(token.is_due(Instant::now()) && !token.has_expired(Instant::now()));
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(token.has_expired(Instant::now()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_of_a_few_seconds_is_used_for_half_of_them() {
        let token = token("2026-01-01T00:00:30Z");
        tokio::time::advance(Duration::from_secs(14)).await;
        assert!(!token.is_due(Instant::now()));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(token.is_due(Instant::now()));
    }

    #[tokio::test]
    async fn a_token_is_never_shown() {
        let shown = format!("{:?}", token("2026-01-01T00:00:30Z"));
        assert!(!shown.contains("secret"), "{shown}");
    }
}
