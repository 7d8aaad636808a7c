//! Reads the device, and caches its answers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use staffetta_driver::{DriverError, Reason};
use tokio::time::Instant;

use crate::model::config::ConfigData;
use crate::model::oper::OperData;
use crate::model::read;
use crate::model::resource::{self, Resource};
use crate::observe::Observed;
use crate::restconf::NetworkClient;

/// The time for which the configuration is cached, as long as this process does not change it and no application
/// appears or disappears.
const CONFIGURED: Duration = Duration::from_secs(60);

const CONFIG: &str = "read the configured apps";
const OPER: &str = "read the state of the apps";

/// The cached result of the last read of the device.
#[derive(Default)]
pub(super) struct DeviceReading {
    /// The time of the observation; `None` after a change.
    at: Option<Instant>,
    /// The time at which the configuration was read; `None` if it may have changed.
    configured_at: Option<Instant>,
    /// `true` if notifications were read too.
    full: bool,
    /// The answers, to find out whether they changed.
    config: Option<Vec<u8>>,
    oper: Option<Vec<u8>>,
    /// The applications that the device has, configured or not.
    names: BTreeSet<String>,
    /// The parsed observation.
    observed: Option<Arc<Observed>>,
}

impl DeviceReading {
    /// Returns the state of the device, at most `age` old, with notifications if `full`. Unchanged answers return the
    /// same `Arc`.
    pub(super) async fn observed(
        &mut self,
        client: &dyn NetworkClient,
        age: Duration,
        full: bool,
    ) -> Result<Arc<Observed>, DriverError> {
        if let Some(observed) = &self.observed
            && self.at.is_some_and(|at| at.elapsed() < age)
            && (self.full || !full)
        {
            return Ok(Arc::clone(observed));
        }
        self.read(client, full).await
    }

    /// Reads the device, regardless of the age of the cache. The configuration is read only if it may have changed.
    pub(super) async fn read(
        &mut self,
        client: &dyn NetworkClient,
        full: bool,
    ) -> Result<Arc<Observed>, DriverError> {
        self.at = None; // a failed read leaves no fresh one
        let oper = client.get(if full { resource::EVENTS } else { resource::STATES }, OPER).await?;
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
        if self.configured_at.is_none_or(|at| at.elapsed() >= CONFIGURED) {
            let config = client.get(resource::CONFIG, CONFIG).await?;
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

    fn configured(&mut self) -> Result<ConfigData, DriverError> {
        let read = parsed(resource::CONFIG, self.config.as_deref(), CONFIG);
        // What cannot be understood is read again.
        read.inspect_err(|_| self.configured_at = None)
    }

    /// Marks the cached state as outdated.
    pub(super) fn invalidate(&mut self) {
        (self.at, self.configured_at) = (None, None);
    }
}

fn operational(body: Option<&[u8]>) -> Result<OperData, DriverError> {
    parsed(resource::STATES, body, OPER)
}

/// Reads a resource. An empty resource gives the default value.
pub(super) async fn fetch<T: DeserializeOwned + Default>(
    client: &dyn NetworkClient,
    resource: Resource,
    step: &'static str,
) -> Result<T, DriverError> {
    let body = client.get(resource, step).await?;
    parsed(resource, body.as_deref(), step)
}

/// Parses the answer of a resource.
fn parsed<T: DeserializeOwned + Default>(
    resource: Resource,
    body: Option<&[u8]>,
    step: &'static str,
) -> Result<T, DriverError> {
    let Some(body) = body else { return Ok(T::default()) };
    read(body, resource.container()).map_err(|error| {
        let unreadable = DriverError::new(Reason::Unavailable, step);
        unreadable.detail("the response cannot be decoded").because(error)
    })
}
