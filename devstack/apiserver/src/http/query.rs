//! The query of a request, read once.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::Query as Pairs;
use http::Uri;

use crate::engine::ListQuery;
use crate::selector::Selector;
use crate::status::Status;
use crate::table::Resource;

/// The parameters of a request by name, each with all its values.
pub(super) struct Query(BTreeMap<String, Vec<String>>);

impl Query {
    pub(super) fn of(uri: &Uri) -> Result<Self, Status> {
        let pairs = Pairs::<Vec<(String, String)>>::try_from_uri(uri)
            .map_err(|error| Status::bad_request(format!("the query cannot be read: {error}")))?;
        let mut parameters = BTreeMap::<_, Vec<_>>::new();
        for (name, value) in pairs.0 {
            parameters.entry(name).or_default().push(value);
        }
        Ok(Self(parameters))
    }

    /// A parameter; empty where it is absent.
    pub(super) fn text(&self, name: &str) -> &str {
        self.values(name).last().map_or("", String::as_str)
    }

    /// All values of a parameter.
    pub(super) fn values(&self, name: &str) -> &[String] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    pub(super) fn flag(&self, name: &str) -> Result<bool, Status> {
        match self.text(name) {
            "" | "false" | "0" => Ok(false),
            "true" | "1" => Ok(true),
            other => Err(Status::bad_request(format!("{name}: {other:?} is neither true nor false"))),
        }
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, Status> {
        let text = self.text(name);
        if text.is_empty() {
            return Ok(None);
        }
        let number =
            text.parse().map_err(|_| Status::bad_request(format!("{name}: {text:?} is not a number")))?;
        Ok(Some(number))
    }

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

    /// How long a watch goes on; without a wish half an hour.
    pub(super) fn timeout(&self) -> Result<Duration, Status> {
        Ok(Duration::from_secs(self.number("timeoutSeconds")?.filter(|seconds| *seconds > 0).unwrap_or(1800)))
    }
}
