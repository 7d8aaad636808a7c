//! The query parameters of the verbs.

use std::time::Duration;

use crate::engine::ListQuery;
use crate::front::Query;
use crate::selector::Selector;
use crate::status::Status;
use crate::table::Resource;

impl Query {
    /// The selectors; a single object is selected by its name.
    pub(super) fn selector(&self, resource: &Resource) -> Result<Selector, Status> {
        Selector::parse(resource, self.text("labelSelector"), self.text("fieldSelector"))
    }

    pub(super) fn list(&self) -> Result<ListQuery, Status> {
        // A negative limit is none.
        let limit = if self.text("limit").starts_with('-') { None } else { self.number("limit")? };
        let limit = limit.unwrap_or_default();
        Ok(ListQuery {
            resource_version: self.text("resourceVersion").into(),
            resource_version_match: self.text("resourceVersionMatch").into(),
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
            continue_from: self.text("continue").into(),
        })
    }

    /// The time limit of a watch, half an hour by default.
    pub(super) fn timeout(&self) -> Result<Duration, Status> {
        Ok(Duration::from_secs(self.number("timeoutSeconds")?.filter(|seconds| *seconds > 0).unwrap_or(1800)))
    }
}
