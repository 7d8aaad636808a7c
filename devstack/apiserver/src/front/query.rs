//! The query of a request, parsed once.

use std::collections::BTreeMap;

use axum::extract::Query as Pairs;
use http::Uri;

use crate::status::Status;

/// The parameters of a request by name, each with all its values.
pub(crate) struct Query(BTreeMap<String, Vec<String>>);

impl Query {
    pub(crate) fn of(uri: &Uri) -> Result<Self, Status> {
        let pairs = Pairs::<Vec<(String, String)>>::try_from_uri(uri)
            .map_err(|error| Status::bad_request(format!("the query cannot be read: {error}")))?;
        let mut parameters = BTreeMap::<_, Vec<_>>::new();
        for (name, value) in pairs.0 {
            parameters.entry(name).or_default().push(value);
        }
        Ok(Self(parameters))
    }

    /// A parameter; empty where it is absent.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.values(name).last().map_or("", String::as_str)
    }

    /// All values of a parameter.
    pub(crate) fn values(&self, name: &str) -> &[String] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn flag(&self, name: &str) -> Result<bool, Status> {
        match self.text(name) {
            "" | "false" | "0" => Ok(false),
            "true" | "1" => Ok(true),
            other => Err(Status::bad_request(format!("{name}: {other:?} is neither true nor false"))),
        }
    }

    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, Status> {
        let text = self.text(name);
        if text.is_empty() {
            return Ok(None);
        }
        let number =
            text.parse().map_err(|_| Status::bad_request(format!("{name}: {text:?} is not a number")))?;
        Ok(Some(number))
    }
}
