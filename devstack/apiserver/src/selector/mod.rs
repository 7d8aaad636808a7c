//! Selectors of lists and watches.

mod field;
mod label;

use serde_json::Value;

use crate::status::Status;
use crate::table::Resource;

/// Both selectors of a request. An empty selector takes everything.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    labels: Vec<label::Requirement>,
    fields: Vec<field::Requirement>,
}

impl Selector {
    /// Reads the query parameters `labelSelector` and `fieldSelector`.
    pub(crate) fn parse(resource: &Resource, labels: &str, fields: &str) -> Result<Self, Status> {
        let unreadable = |why: String| Status::bad_request(format!("unable to parse requirement: {why}"));
        Ok(Self {
            labels: label::parse(labels).map_err(unreadable)?,
            fields: field::parse(resource, fields)?,
        })
    }

    /// Is the object, in its stored form, selected?
    pub(crate) fn matches(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.labels.iter().all(|requirement| requirement.holds(labels))
            && self.fields.iter().all(|requirement| requirement.holds(object))
    }

    /// Does it take everything?
    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }
}
