//! A token, and how long it is good for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use reqwest::header::{HeaderName, HeaderValue};
use serde::Deserialize;
use tokio::time::Instant;

use super::catalogue::Catalogue;
use crate::cloud::ServiceKind;

/// A token is renewed so long before it expires, or when half of its time is over, whichever is later.
const MARGIN: Duration = Duration::from_secs(60);

/// The header in which a token is sent.
const TOKEN: HeaderName = HeaderName::from_static("x-auth-token");

/// A token with the catalogue that came with it, or none where the services ask for none.
#[derive(Debug)]
pub(crate) struct Token {
    value: Option<HeaderValue>,
    catalogue: Catalogue,
    life: Option<Life>,
    /// Whether the service has accepted it, each at its place.
    accepted: [AtomicBool; ServiceKind::COUNT],
}

/// From when to when a token is good.
#[derive(Clone, Copy, Debug)]
pub(super) struct Life {
    began: Instant,
    length: Duration,
}

/// What Keystone says of a token.
#[derive(Deserialize)]
pub(super) struct Told {
    token: ToldToken,
}

#[derive(Deserialize)]
struct ToldToken {
    issued_at: Timestamp,
    expires_at: Timestamp,
    #[serde(default)]
    catalog: Catalogue,
}

impl Token {
    /// No token.
    pub(super) fn none() -> Self {
        Self {
            value: None,
            catalogue: Catalogue::default(),
            life: None,
            accepted: [true; ServiceKind::COUNT].map(AtomicBool::new),
        }
    }

    /// The token of this `value`, of which Keystone said this in answer to a question of `asked`. How long it is good for
    /// is told by Keystone's own clock alone: ours may be wrong.
    pub(super) fn new(mut value: HeaderValue, told: Told, asked: Instant) -> Self {
        value.set_sensitive(true);
        let length = told.token.expires_at.duration_since(told.token.issued_at);
        let life = Life { began: asked, length: length.try_into().unwrap_or_default() };
        Self {
            value: Some(value),
            catalogue: told.token.catalog,
            life: Some(life),
            accepted: [false; ServiceKind::COUNT].map(AtomicBool::new),
        }
    }

    /// The header that a request carries.
    pub(crate) fn header(&self) -> Option<(HeaderName, HeaderValue)> {
        self.value.clone().map(|value| (TOKEN, value))
    }

    /// Where the services are.
    pub(crate) fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// The service has accepted it.
    pub(crate) fn accepted(&self, service: ServiceKind) {
        self.accepted[service.place()].store(true, Ordering::Relaxed);
    }

    /// Whether the service has ever accepted it.
    pub(super) fn was_accepted(&self, service: ServiceKind) -> bool {
        self.accepted[service.place()].load(Ordering::Relaxed)
    }

    /// Whether it is time for another one.
    pub(super) fn is_old(&self, now: Instant) -> bool {
        self.life.is_some_and(|life| now >= life.renew_at())
    }

    /// Whether it is good no more.
    pub(super) fn has_expired(&self, now: Instant) -> bool {
        self.life.is_some_and(|life| now >= life.began + life.length)
    }

    /// For how long it has been there; nothing where there is none.
    pub(super) fn age(&self, now: Instant) -> Duration {
        self.life.map_or(Duration::ZERO, |life| now.saturating_duration_since(life.began))
    }
}

impl Life {
    fn renew_at(self) -> Instant {
        self.began + (self.length / 2).max(self.length.saturating_sub(MARGIN))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn token(expires_at: &str) -> Token {
        let told =
            json!({ "token": { "issued_at": "2026-01-01T00:00:00.000000Z", "expires_at": expires_at } });
        let told = serde_json::from_value(told).unwrap();
        Token::new(HeaderValue::from_static("secret"), told, Instant::now())
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_is_renewed_a_minute_before_it_expires_whatever_our_clock_says() {
        let token = token("2026-01-01T01:00:00.000000Z");
        assert!(!token.is_old(Instant::now()));
        tokio::time::advance(Duration::from_secs(59 * 60 - 1)).await;
        assert!(!token.is_old(Instant::now()));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(token.is_old(Instant::now()) && !token.has_expired(Instant::now()));
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(token.has_expired(Instant::now()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_of_a_few_seconds_is_used_for_half_of_them() {
        let token = token("2026-01-01T00:00:30Z");
        tokio::time::advance(Duration::from_secs(14)).await;
        assert!(!token.is_old(Instant::now()));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(token.is_old(Instant::now()));
    }

    #[tokio::test]
    async fn a_token_is_never_shown() {
        let shown = format!("{:?}", token("2026-01-01T00:00:30Z"));
        assert!(!shown.contains("secret"), "{shown}");
    }
}
