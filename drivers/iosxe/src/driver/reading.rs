//! Looks at the device, and remembers what was seen.

use std::sync::Arc;
use std::time::Duration;

use staffetta_driver::DriverError;
use tokio::time::Instant;

use super::unreadable;
use crate::model::config::ConfigData;
use crate::model::oper::OperData;
use crate::model::{path, read};
use crate::observe::Observed;
use crate::restconf::NetworkClient;

/// The last look at the device.
#[derive(Default)]
pub(super) struct Reading {
    last: Option<Look>,
}

struct Look {
    /// When it was done; none once something was changed since.
    at: Option<Instant>,
    full: bool,
    /// The answers, to find out whether they changed.
    config: Option<Vec<u8>>,
    oper: Option<Vec<u8>>,
    observed: Arc<Observed>,
}

impl Reading {
    /// What is on the device, as it was `age` ago at most; `full` with its notifications. When the answers are those of the
    /// look before, so is what is returned.
    pub(super) async fn observed(
        &mut self,
        client: &dyn NetworkClient,
        age: Duration,
        full: bool,
    ) -> Result<Arc<Observed>, DriverError> {
        if let Some(look) = &self.last
            && look.at.is_some_and(|at| at.elapsed() < age)
            && (look.full || !full)
        {
            return Ok(Arc::clone(&look.observed));
        }
        self.look(client, full).await
    }

    /// Looks again, however fresh the last look is.
    pub(super) async fn look(
        &mut self,
        client: &dyn NetworkClient,
        full: bool,
    ) -> Result<Arc<Observed>, DriverError> {
        const CONFIG: &str = "read the configured apps";
        const OPER: &str = "read the state of the apps";
        self.changed(); // a look that fails leaves none that is fresh
        let config = client.get(path::CONFIG, CONFIG).await?;
        let oper = client.get(if full { path::OPER } else { path::OPER_APPS }, OPER).await?;
        let at = Some(Instant::now());
        if let Some(look) = &mut self.last
            && look.full == full
            && look.config == config
            && look.oper == oper
        {
            look.at = at;
            return Ok(Arc::clone(&look.observed));
        }
        let configured: ConfigData = match &config {
            Some(body) => read(body, "app-hosting-cfg-data").map_err(|error| unreadable(CONFIG, error))?,
            None => ConfigData::default(),
        };
        let operational: OperData = match &oper {
            Some(body) => read(body, "app-hosting-oper-data").map_err(|error| unreadable(OPER, error))?,
            None => OperData::default(),
        };
        let observed = Arc::new(Observed::join(configured, operational));
        self.last = Some(Look { at, full, config, oper, observed: Arc::clone(&observed) });
        Ok(observed)
    }

    /// Something was changed on the device.
    pub(super) fn changed(&mut self) {
        if let Some(look) = &mut self.last {
            look.at = None;
        }
    }
}
