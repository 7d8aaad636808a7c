//! Connections to devices that are being opened.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use staffetta_driver::app_hosting::{AppHostingDriver, DeviceSpec};
use staffetta_driver::{DriverError, Reason};
use tokio::task::spawn_blocking;

use crate::lock::lock;

pub(super) const OPEN: &str = "open the connection to the device";

/// The result of opening a driver.
type ConnectionResult = Result<Arc<dyn AppHostingDriver>, DriverError>;

/// The connections that are being opened, by the name of the node. Opening one reads files. A file system that never answers
/// blocks one thread for each device, however often the connection is tried again.
#[derive(Default)]
pub(super) struct DriverConnections(Mutex<HashMap<String, DriverConnection>>);

struct DriverConnection {
    spec: DeviceSpec,
    opened: Shared<BoxFuture<'static, ConnectionResult>>,
}

impl DriverConnections {
    /// Opens the connection to the device of that node with `open`, on a thread for blocking work. If a connection with the same
    /// description is being opened already, it waits for that one instead.
    pub(super) async fn open(
        &self,
        node: &str,
        spec: DeviceSpec,
        open: impl FnOnce(DeviceSpec) -> ConnectionResult + Send + 'static,
    ) -> ConnectionResult {
        let opening = self.begin(node, spec, open);
        let opened = opening.clone().await;
        let mut openings = lock(&self.0);
        if openings.get(node).is_some_and(|known| known.opened.ptr_eq(&opening)) {
            openings.remove(node);
        }
        opened
    }

    fn begin(
        &self,
        node: &str,
        spec: DeviceSpec,
        open: impl FnOnce(DeviceSpec) -> ConnectionResult + Send + 'static,
    ) -> Shared<BoxFuture<'static, ConnectionResult>> {
        let mut openings = lock(&self.0);
        if let Some(known) = openings.get(node).filter(|known| known.spec == spec) {
            return known.opened.clone();
        }
        let described = spec.clone();
        let opened = spawn_blocking(move || open(described)).map(|opened| {
            opened.unwrap_or_else(|error| Err(DriverError::new(Reason::Unavailable, OPEN).because(error)))
        });
        let opened = opened.boxed().shared();
        openings.insert(node.to_owned(), DriverConnection { spec, opened: opened.clone() });
        opened
    }
}
