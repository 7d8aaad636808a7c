//! Copies of packages to the flash. The device answers a copy when it is done, which may take minutes: it is waited for beside
//! all other requests.

use std::sync::Arc;
use std::time::Duration;

use staffetta_driver::{DriverError, Reason};
use tokio::task::JoinSet;

use crate::model::operation::Operation;
use crate::restconf::{Fault, NetworkClient};

/// The copy that is being made. It is not waited for any more when this is dropped; the device goes on with it.
#[derive(Default)]
pub(super) struct Copies {
    /// The application whose package it is.
    under_way: Option<String>,
    tasks: JoinSet<Result<(), Fault>>,
}

impl Copies {
    /// The application whose package is being copied.
    pub(super) fn under_way(&self) -> Option<&str> {
        self.under_way.as_deref()
    }

    /// Begins a copy, of which there is none yet. What an earlier one has left at its place is deleted first.
    pub(super) fn begin(
        &mut self,
        client: Arc<dyn NetworkClient>,
        id: &str,
        (from, to): (String, String),
        limit: Duration,
    ) {
        self.under_way = Some(id.to_owned());
        self.tasks.spawn(async move {
            let rest = Operation::Delete { file: to.clone() };
            match client.operate(&rest, None).await {
                // Usually there is none.
                Err(fault) if fault.said.is_none() => return Err(fault),
                _ => {}
            }
            client.operate(&Operation::Copy { from, to }, Some(limit)).await
        });
    }

    /// Returns the result of a copy, once it ended.
    pub(super) fn ended(&mut self) -> Option<(String, Result<(), Fault>)> {
        let ended = self.tasks.try_join_next()?;
        let lost = |error| DriverError::new(Reason::Unavailable, "copy a package").because(error).into();
        Some((self.under_way.take()?, ended.unwrap_or_else(|error| Err(lost(error)))))
    }
}

/// Returns `true` if the device reports that the file to delete does not exist.
pub(super) fn is_not_there(fault: &Fault) -> bool {
    fault.said.as_ref().is_some_and(|said| said.to_ascii_lowercase().contains("no such file"))
}
