//! The ways to devices that are being opened.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use staffetta_driver::app_hosting::{AppHostingDriver, DeviceSpec};
use staffetta_driver::{DriverError, Reason};
use tokio::task::spawn_blocking;

use crate::lock::lock;

pub(super) const OPEN: &str = "open the way to the device";

/// The result of opening a driver.
type ConnectionResult = Result<Arc<dyn AppHostingDriver>, DriverError>;

/// The ways that are being opened, by the name of the node. What that takes is in files, and a file that never comes holds one
/// thread, however often opening it is tried again.
#[derive(Default)]
pub(super) struct DriverConnections(Mutex<HashMap<String, DriverConnection>>);

struct DriverConnection {
    spec: DeviceSpec,
    opened: Shared<BoxFuture<'static, ConnectionResult>>,
}

impl DriverConnections {
    /// The way to the device of that node, as `open` opens it; or as it is being opened already, for a device that is described so.
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
