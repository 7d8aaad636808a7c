//! The pending attempts to open connections to devices.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use parking_lot::Mutex;
use staffetta_driver::app_hosting::AppHostingDriver;
use staffetta_driver::{DriverError, Reason};
use tokio::task::spawn_blocking;

use super::device::DeviceDescription;

/// The step of opening a connection, for error messages.
pub(super) const OPEN: &str = "connect to the device";

/// The time for which the result of opening a connection to a device is kept for the next attempt, if no caller has waited for it.
const RETENTION: Duration = Duration::from_secs(60);

/// The driver with an open connection to a device and a digest of its parameters with the password, or the error of opening it.
type ConnectionResult = Result<(Arc<dyn AppHostingDriver>, u64), DriverError>;

/// The pending attempts to open connections to devices, by node name. An attempt reads files in a separate thread. If such a read
/// hangs, retries wait for the same read, so that it occupies only one thread. The result is kept for [`RETENTION`] if no caller waits
/// for it.
#[derive(Default)]
pub(super) struct DriverConnections(Arc<Mutex<HashMap<String, DriverConnection>>>);

/// A pending attempt to open a connection, with the specification of the device.
struct DriverConnection {
    spec: DeviceDescription,
    opened: Shared<BoxFuture<'static, ConnectionResult>>,
}

impl DriverConnections {
    /// Opens a connection to the device of `node` with the function `open`, and returns the driver. If a connection
    /// with the same `spec` is being opened already, its result is returned instead.
    pub(super) async fn open(
        &self,
        node: &str,
        spec: DeviceDescription,
        open: impl FnOnce(DeviceDescription) -> ConnectionResult + Send + 'static,
    ) -> ConnectionResult {
        let opening = self.begin(node, spec, open);
        let opened = opening.clone().await;
        let mut connecting = self.0.lock();
        if connecting.get(node).is_some_and(|known| known.opened.ptr_eq(&opening)) {
            connecting.remove(node);
        }
        opened
    }

    /// Starts to open a connection in a thread for blocking work, or returns the attempt that is in progress for the same `spec`. A panic
    /// of `open` becomes an error.
    fn begin(
        &self,
        node: &str,
        spec: DeviceDescription,
        open: impl FnOnce(DeviceDescription) -> ConnectionResult + Send + 'static,
    ) -> Shared<BoxFuture<'static, ConnectionResult>> {
        let mut connecting = self.0.lock();
        if let Some(known) = connecting.get(node).filter(|known| known.spec == spec) {
            return known.opened.clone();
        }
        let described = spec.clone();
        let opened = spawn_blocking(move || open(described)).map(|opened| {
            opened.unwrap_or_else(|error| Err(DriverError::new(Reason::Unavailable, OPEN).because(error)))
        });
        let opened = opened.boxed().shared();
        connecting.insert(node.to_owned(), DriverConnection { spec, opened: opened.clone() });
        let (kept, name) = (Arc::clone(&self.0), node.to_owned());
        // Whoever takes the result decides for how long the connection stays open.
        let (ended, result) = (opened.clone(), opened.downgrade());
        tokio::spawn(async move {
            drop(ended.await);
            tokio::time::sleep(RETENTION).await;
            let Some(result) = result.as_ref().and_then(WeakShared::upgrade) else { return };
            let mut kept = kept.lock();
            if kept.get(&name).is_some_and(|known| known.opened.ptr_eq(&result)) {
                kept.remove(&name);
            }
        });
        opened
    }
}
