//! A record of requests, with which tests count reads and writes.

use std::sync::{Mutex, PoisonError};

use super::asked::Question;

/// One request for a resource, recorded when its answer was decided (a watch: when it began).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestRecord {
    /// get, list, watch, create, update, patch, delete or deletecollection.
    pub verb: String,
    /// The plural name: `pods`.
    pub resource: String,
    /// `status`, `scale`, `binding` ...; empty for the object itself.
    pub subresource: String,
    /// Empty for cluster-wide requests.
    pub namespace: String,
    /// Empty for requests that are about many objects.
    pub name: String,
    /// `true` if the query contains `dryRun=All`. A deletion with a body is a dry run only if the body says so too.
    pub dry_run: bool,
    /// The User-Agent header.
    pub user_agent: String,
    /// The HTTP status of the answer; 0 where the client was left without one.
    pub code: u16,
}

impl RequestRecord {
    pub(super) fn new(question: &Question, user_agent: String, code: u16) -> Self {
        let target = &question.target;
        Self {
            verb: question.verb.into(),
            resource: target.plural.clone(),
            subresource: target.subresource.clone().unwrap_or_default(),
            namespace: target.namespace.clone().unwrap_or_default(),
            name: target.name.clone().unwrap_or_default(),
            dry_run: question.dry_run,
            user_agent,
            code,
        }
    }

    /// Was this a request that can change something?
    #[must_use]
    pub fn is_write(&self) -> bool {
        !["get", "list", "watch"].contains(&self.verb.as_str())
    }
}

/// The records, oldest first.
#[derive(Default)]
pub(super) struct Audit(Mutex<Vec<RequestRecord>>);

impl Audit {
    pub(super) fn push(&self, record: RequestRecord) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(record);
    }

    pub(super) fn all(&self) -> Vec<RequestRecord> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
