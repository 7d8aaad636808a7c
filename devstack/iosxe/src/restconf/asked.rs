//! A request.

use serde_json::Value;

use super::answer::Problem;
use super::{YANG_JSON, query};
use crate::data::Fields;

/// A request, as far as a device looks at it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asked<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) query: &'a str,
    pub(crate) authorization: Option<&'a str>,
    pub(crate) accept: Option<&'a str>,
    pub(crate) content_type: Option<&'a str>,
    pub(crate) body: &'a [u8],
}

impl Asked<'_> {
    /// Fails with 406, where the client does not want this media type.
    pub(crate) fn accepts(&self, media: &str) -> Result<(), Problem> {
        let Some(accept) = self.accept else { return Ok(()) };
        let kind = media.split('/').next().unwrap_or_default();
        let wanted = accept.split(',').map(|range| range.split(';').next().unwrap_or_default().trim());
        let fits = |range: &str| range == "*/*" || range == media || range.strip_suffix("/*") == Some(kind);
        if wanted.into_iter().any(fits) {
            return Ok(());
        }
        Err(Problem::new(406, "invalid-value", format!("only {media} is answered here")))
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Result<Value, Problem> {
        let media = self.content_type.map(|kind| kind.split(';').next().unwrap_or_default().trim());
        if media != Some(YANG_JSON) {
            return Err(Problem::new(415, "invalid-value", format!("only {YANG_JSON} is understood here")));
        }
        serde_json::from_slice(self.body)
            .map_err(|error| Problem::new(400, "malformed-message", format!("no JSON: {error}")))
    }

    /// The query parameter `fields`; any but those of a GET are refused.
    pub(crate) fn fields(&self) -> Result<Fields, Problem> {
        let parameters = query::parameters(self.query);
        if self.method != "GET" && !parameters.is_empty() {
            return Err(Problem::new(400, "invalid-value", "query parameters belong to GET".into()));
        }
        let mut fields = Fields::default();
        for (name, value) in parameters {
            fields = match (name.as_str(), value.as_str()) {
                ("fields", text) => Fields::parse(text).map_err(|_| {
                    Problem::new(400, "invalid-value", format!("no expression for fields: {text}"))
                })?,
                ("content", "all" | "config" | "nonconfig") => continue,
                (name, value) => {
                    let message = format!("the query parameter {name}={value} is not supported");
                    return Err(Problem::new(400, "invalid-value", message));
                }
            };
        }
        Ok(fields)
    }
}
