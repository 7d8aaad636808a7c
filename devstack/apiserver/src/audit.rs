//! What was asked of the server, so that tests can count reads and writes.

use std::sync::{Mutex, PoisonError};

/// One request for a resource, recorded when its answer was decided (a watch: when it began).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestRecord {
    /// get, list, watch, create, update, patch, delete or deletecollection.
    pub verb: String,
    /// The plural name: `pods`.
    pub resource: String,
    /// `status`, `scale` or `binding`; empty for the object itself.
    pub subresource: String,
    /// Empty for cluster-wide requests.
    pub namespace: String,
    /// Empty for requests that are about many objects.
    pub name: String,
    /// Whether the query says `dryRun=All`. A deletion with a body is one only if its body says so too.
    pub dry_run: bool,
    /// The User-Agent header.
    pub user_agent: String,
    /// The HTTP status of the answer; 0 where an injected fault left the client without one.
    pub code: u16,
}

impl RequestRecord {
    /// Was this a request that can change something?
    #[must_use]
    pub fn is_write(&self) -> bool {
        !["get", "list", "watch"].contains(&self.verb.as_str())
    }
}

/// The records, oldest first.
#[derive(Default)]
pub(crate) struct Audit(Mutex<Vec<RequestRecord>>);

impl Audit {
    pub(crate) fn push(&self, record: RequestRecord) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(record);
    }

    pub(crate) fn all(&self) -> Vec<RequestRecord> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
