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

/// The access keys of the driver, obtained from their [source](super::CredentialSource) at first use.
pub(crate) struct CredentialCache {
    source: CredentialSource,
    fetch: CredentialFetch,
    keys: Mutex<Option<AccessKeys>>,
}

impl CredentialCache {
    /// Creates an empty cache. Roles are assumed at the STS endpoint of `region`, unless the source names
    /// another one.
    pub(crate) fn new(
        source: CredentialSource,
        region: &str,
        clients: (reqwest::Client, reqwest::Client),
    ) -> Self {
        Self { source, fetch: CredentialFetch::new(region, clients), keys: Mutex::default() }
    }

    /// Returns keys that are valid at the time `now`. They are replaced 5 minutes before they expire; if that fails, the old ones are used
    /// until they expire.
    pub(crate) async fn keys(&self, now: SystemTime) -> Result<AccessKeys, DriverError> {
        let mut cached = self.keys.lock().await;
        let expires_in = |keys: &AccessKeys, early| keys.expires.is_some_and(|at| at <= now + early);
        if let Some(keys) = cached.as_ref().filter(|keys| !expires_in(keys, RENEW_BEFORE_EXPIRY)) {
            return Ok(keys.clone());
        }
        match self.fetch.keys(&self.source).await {
            Ok(keys) => {
                info!(access_key = keys.id, "the AWS credentials were read");
                Ok(cached.insert(keys).clone())
            }
            Err(error) => match cached.as_ref().filter(|keys| !expires_in(keys, Duration::ZERO)) {
                Some(keys) => {
                    warn!(%error, "the AWS credentials cannot be replaced; they are used until they expire");
                    Ok(keys.clone())
                }
                None => Err(error),
            },
        }
    }

    /// Removes `keys`, which EC2 refused, from the cache. Does nothing if they were replaced meanwhile.
    pub(crate) async fn refused(&self, keys: &AccessKeys) {
        let mut cached = self.keys.lock().await;
        cached.take_if(|cached| cached.id == keys.id);
    }
}
