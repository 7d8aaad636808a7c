//! The record of requests, by which tests count reads and writes.

use parking_lot::Mutex;

use super::asked::Question;

/// A request for a resource. It is recorded when its response is decided; a watch, when it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestRecord {
    /// The verb: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub verb: String,
    /// The plural name: `pods`.
    pub resource: String,
    /// `status`, `scale`, `binding` ...; empty for the object itself.
    pub subresource: String,
    /// The namespace; empty for cluster-wide requests.
    pub namespace: String,
    /// The name of the object; empty for requests that concern several objects.
    pub name: String,
    /// `true` if the query contains `dryRun=All`. A deletion with a body is a dry run only if the body contains it too.
    pub dry_run: bool,
    /// The User-Agent header.
    pub user_agent: String,
    /// The HTTP status of the response; 0 if the client got no response.
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

    /// Returns `true` if the request can change something.
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
        self.0.lock().push(record);
    }

    pub(super) fn all(&self) -> Vec<RequestRecord> {
        self.0.lock().clone()
    }

    pub(super) fn clear(&self) {
        self.0.lock().clear();
    }
}
