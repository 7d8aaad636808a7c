//! Reads the device and caches the responses.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use staffetta_driver::{DriverError, Reason};
use tokio::time::Instant;
use tracing::debug;

use crate::model::config::ConfigData;
use crate::model::oper::OperData;
use crate::model::read;
use crate::model::resource::{self, RestconfResource};
use crate::observe::Observed;
use crate::restconf::NetworkClient;

/// The time for which the configuration is cached. It is read earlier if this process has changed it, or if an
/// application has appeared or disappeared.
const CONFIG_MAX_AGE: Duration = Duration::from_secs(60);

/// The read of the configuration, as errors name it.
const CONFIG: &str = "read the configured apps";
/// The read of the operational data, as errors name it.
const OPER: &str = "read the state of the apps";

/// The cache of the last read of the device: its responses, and the state that was decoded from them.
#[derive(Default)]
pub(super) struct DeviceReading {
    /// The time of the last read; `None` if it failed, or this process has changed the device since.
    at: Option<Instant>,
    /// The number of changes of the device by this process before the last read.
    changes: u64,
    /// The time of the last read of the configuration; `None` if it may have changed.
    configured_at: Option<Instant>,
    /// `true` if the last read included the notifications of the device (results of operations on applications).
    full: bool,
    /// The last response with the configuration. An identical response is not decoded again.
    config: Option<Vec<u8>>,
    /// The last response with the operational data.
    oper: Option<Vec<u8>>,
    /// The names of all applications in the operational data.
    names: BTreeSet<String>,
    /// The decoded state of the device.
    observed: Option<Arc<Observed>>,
    /// The number of reads of the operational data so far.
    reads: u64,
    /// The number of reads of the configuration so far.
    configuration_reads: u64,
}

impl DeviceReading {
    /// Returns the state of the device from a read that is at most `age` old and later than the last change by this process, with
    /// notifications if `full`. If a read is necessary, it includes the configuration if `recheck`, even if that is cached. `changes` counts
    /// the changes by this process. While the responses of the device are unchanged, the same `Arc` is returned.
    pub(super) async fn observed(
        &mut self,
        client: &dyn NetworkClient,
        (age, changes): (Duration, u64),
        (full, recheck): (bool, bool),
    ) -> Result<Arc<Observed>, DriverError> {
        if self.changes != changes {
            (self.changes, self.at, self.configured_at) = (changes, None, None);
        }
        if let Some(observed) = &self.observed
            && self.at.is_some_and(|at| at.elapsed() < age)
            && (self.full || !full)
        {
            return Ok(Arc::clone(observed));
        }
        self.configured_at = self.configured_at.filter(|_| !recheck);
        self.read(client, full).await
    }

    /// Reads the device, regardless of the age of the last read. The configuration is read only if it may have changed.
    async fn read(&mut self, client: &dyn NetworkClient, full: bool) -> Result<Arc<Observed>, DriverError> {
        self.at = None; // a failed read leaves no fresh one
        let oper = client.get(if full { resource::EVENTS } else { resource::STATES }, OPER).await?;
        self.reads += 1;
        let mut fresh = None;
        if self.observed.is_none() || self.full != full || self.oper != oper {
            let data = operational(oper.as_deref())?;
            let names: BTreeSet<_> = data.apps.iter().map(|app| app.name.clone()).collect();
            if names != self.names {
                self.configured_at = None;
            }
            (self.full, self.oper, self.names, self.observed) = (full, oper, names, None);
            fresh = Some(data);
        }
        if self.configured_at.is_none_or(|at| at.elapsed() >= CONFIG_MAX_AGE) {
            let config = client.get(resource::CONFIG, CONFIG).await?;
            self.configuration_reads += 1;
            if config != self.config {
                (self.config, self.observed) = (config, None);
            }
            self.configured_at = Some(Instant::now());
        }
        let observed = if let Some(observed) = self.observed.take() {
            observed
        } else {
            let data = fresh.map_or_else(|| operational(self.oper.as_deref()), Ok)?;
            Arc::new(Observed::join(self.configured()?, data))
        };
        (self.at, self.observed) = (Some(Instant::now()), Some(Arc::clone(&observed)));
        Ok(observed)
    }

    /// Returns the sequence numbers of the last reads of the operational data and of the configuration.
    pub(super) fn numbers(&self) -> (u64, u64) {
        (self.reads, self.configuration_reads)
    }

    /// Decodes the stored response with the configuration. If that fails, the configuration is read again next time.
    fn configured(&mut self) -> Result<ConfigData, DriverError> {
        let read = parsed(resource::CONFIG, self.config.as_deref(), CONFIG);
        // What cannot be understood is read again.
        read.inspect_err(|_| self.configured_at = None)
    }
}

/// Decodes a response with operational data.
fn operational(body: Option<&[u8]>) -> Result<OperData, DriverError> {
    parsed(resource::STATES, body, OPER)
}

/// Reads and decodes a resource. A resource without data gives the default value. Returns an error if the request fails
/// or the response cannot be decoded.
pub(super) async fn fetch<T: DeserializeOwned + Default>(
    client: &dyn NetworkClient,
    resource: RestconfResource,
    step: &'static str,
) -> Result<T, DriverError> {
    let body = client.get(resource, step).await?;
    parsed(resource, body.as_deref(), step)
}

/// Decodes the response `body` for a resource; without a body, returns the default value. `step` names the read in errors.
fn parsed<T: DeserializeOwned + Default>(
    resource: RestconfResource,
    body: Option<&[u8]>,
    step: &'static str,
) -> Result<T, DriverError> {
    let Some(body) = body else { return Ok(T::default()) };
    read(body, resource.container()).map_err(|error| {
        // The error may quote the response.
        debug!(%error, step, "a response cannot be decoded");
        DriverError::new(Reason::Unavailable, step).detail("the response cannot be decoded")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_that_cannot_be_decoded_is_not_quoted() {
        for body in [r#"{"m:app-hosting-oper-data":"hunter3"}"#, r#"{"hunter3":[}"#, "hunter3"] {
            let error = operational(Some(body.as_bytes())).err().unwrap();
            assert!(!format!("{error:?}").contains("hunter3"), "{error:?}");
        }
    }
}
