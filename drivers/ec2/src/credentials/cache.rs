//! Keeps the access keys in memory, and replaces them before they expire.

use std::time::{Duration, SystemTime};

use staffetta_driver::DriverError;
use tokio::sync::Mutex;
use tracing::{info, warn};

use super::CredentialSource;
use super::fetch::CredentialFetch;
use crate::access_keys::AccessKeys;

/// The time before their expiry at which keys are replaced by new ones.
const RENEW_BEFORE_EXPIRY: Duration = Duration::from_secs(5 * 60);
/// The time for which keys that could not be replaced are used before the next attempt to replace them. New keys that EC2 refuses are
/// replaced only after this time, too.
const RENEW_RETRY: Duration = Duration::from_secs(30);

/// The access keys of the driver, obtained from their [source](super::CredentialSource) at first use.
pub(crate) struct CredentialCache {
    source: CredentialSource,
    fetch: CredentialFetch,
    keys: Mutex<Option<CachedKeys>>,
}

/// The access keys in the cache.
struct CachedKeys {
    keys: AccessKeys,
    /// The time at which the keys were obtained from their source.
    read: SystemTime,
    /// The time from which the keys are to be replaced; `None` for keys that do not expire.
    renew_at: Option<SystemTime>,
}

impl CredentialCache {
    /// Creates an empty cache. Roles are assumed at the STS endpoint of `region`, unless the source names
    /// another one. `clients` are the HTTP clients for the Internet and for this host.
    pub(crate) fn new(
        source: CredentialSource,
        region: &str,
        clients: (reqwest::Client, reqwest::Client),
    ) -> Self {
        Self { source, fetch: CredentialFetch::new(region, clients), keys: Mutex::default() }
    }

    /// Returns keys that are valid at the time `now`. They are replaced 5 minutes before they expire; if that fails, the old ones are used
    /// until they expire, and a call at least 30 s after a failed attempt tries again.
    pub(crate) async fn keys(&self, now: SystemTime) -> Result<AccessKeys, DriverError> {
        let mut cached = self.keys.lock().await;
        let is_past = |time: Option<SystemTime>| time.is_some_and(|time| time <= now);
        let valid = cached.as_mut().filter(|cached| !is_past(cached.keys.expires));
        if let Some(valid) = valid.as_ref().filter(|valid| !is_past(valid.renew_at)) {
            return Ok(valid.keys.clone());
        }
        match self.fetch.keys(&self.source).await {
            Ok(keys) => {
                info!(access_key = keys.id, "the AWS credentials were read");
                let renew_at = keys.expires.map(|expires| expires - RENEW_BEFORE_EXPIRY);
                *cached = Some(CachedKeys { keys: keys.clone(), read: now, renew_at });
                Ok(keys)
            }
            Err(error) => match valid {
                Some(valid) => {
                    warn!(%error, "the AWS credentials cannot be replaced; they are used until they expire");
                    valid.renew_at = Some(now + RENEW_RETRY);
                    Ok(valid.keys.clone())
                }
                None => Err(error),
            },
        }
    }

    /// Removes `keys`, which EC2 refused at the time `now`, from the cache. Does nothing if they were replaced meanwhile, or were read less
    /// than 30 s ago: the source may have no others.
    pub(crate) async fn refused(&self, keys: &AccessKeys, now: SystemTime) {
        let mut cached = self.keys.lock().await;
        cached.take_if(|cached| cached.keys.id == keys.id && cached.read + RENEW_RETRY <= now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::DirectSource;

    #[tokio::test]
    async fn refused_keys_are_read_again_only_some_time_after_they_were_read() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::new;
        let keys = AccessKeys { id: "AKIA1".into(), secret: "hunter2".into(), token: None, expires: None };
        let source = CredentialSource::Direct(DirectSource::Fixed(keys.clone()));
        let cache = CredentialCache::new(source, "eu-west-1", (client(), client()));
        let read = SystemTime::now();
        cache.keys(read).await.unwrap();
        for (seconds, kept) in [(0, true), (29, true), (30, false)] {
            cache.refused(&keys, read + Duration::from_secs(seconds)).await;
            assert_eq!(cache.keys.lock().await.is_some(), kept, "{seconds} s");
        }
    }
}
