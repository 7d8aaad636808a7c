//! Copies packages to the flash of the device. The device responds when a copy is complete, which may take minutes, so
//! that the response is awaited in a separate task.

use std::sync::Arc;
use std::time::Duration;

use staffetta_driver::{DriverError, Reason};
use tokio::task::JoinSet;

use crate::model::operation::DeviceOperation;
use crate::restconf::{NetworkClient, RequestFailure};

/// The running copy of a package. If this is dropped, the response is not awaited any more, but the device continues
/// the copy.
#[derive(Default)]
pub(super) struct Copies {
    /// The name of the application whose package is being copied; `None` if there is no running copy.
    under_way: Option<String>,
    tasks: JoinSet<Result<(), RequestFailure>>,
}

impl Copies {
    /// Returns the application whose package is being copied; `None` if there is no running copy.
    pub(super) fn under_way(&self) -> Option<&str> {
        self.under_way.as_deref()
    }

    /// Starts a copy for the application `id`; no other copy may be running. A file that an earlier copy has left at
    /// the destination is deleted first.
    pub(super) fn begin(
        &mut self,
        client: Arc<dyn NetworkClient>,
        id: &str,
        (from, to): (String, String),
        limit: Duration,
    ) {
        self.under_way = Some(id.to_owned());
        self.tasks.spawn(async move {
            let rest = DeviceOperation::Delete { file: to.clone() };
            match client.operate(&rest, None).await {
                // Usually there is none.
                Err(fault) if fault.device_text.is_none() => return Err(fault),
                _ => {}
            }
            client.operate(&DeviceOperation::Copy { from, to }, Some(limit)).await
        });
    }

    /// Returns the application and the result of the copy that has ended; `None` if there is none. Each result is
    /// returned once.
    pub(super) fn ended(&mut self) -> Option<(String, Result<(), RequestFailure>)> {
        let ended = self.tasks.try_join_next()?;
        let lost = |error| DriverError::new(Reason::Unavailable, "copy a package").because(error).into();
        Some((self.under_way.take()?, ended.unwrap_or_else(|error| Err(lost(error)))))
    }
}

/// Returns `true` if the device reports that the file to delete does not exist.
pub(super) fn is_not_there(fault: &RequestFailure) -> bool {
    fault
        .device_text
        .as_ref()
        .is_some_and(|device_text| device_text.to_ascii_lowercase().contains("no such file"))
}
