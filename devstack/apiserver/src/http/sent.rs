//! The body of a request.

use axum::body::Bytes;
use serde_json::Value;

use crate::protobuf;
use crate::status::Status;

/// The body of a request.
pub(super) struct Sent<'a> {
    pub(super) content_type: &'a str,
    pub(super) bytes: &'a Bytes,
}

impl Sent<'_> {
    /// The body as JSON.
    pub(super) fn json(&self) -> Result<Value, Status> {
        let media_type = self.content_type.split(';').next().unwrap_or_default().trim();
        if media_type == protobuf::MEDIA_TYPE {
            return protobuf::decode(self.bytes).map_err(Status::bad_request);
        }
        if !["", "application/json"].contains(&media_type) {
            return Err(Status::of_code(
                415,
                "the body of the request was in an unknown format - accepted media types include: application/json, application/vnd.kubernetes.protobuf",
            ));
        }
        serde_json::from_slice(self.bytes)
            .map_err(|error| Status::bad_request(format!("the body is not valid JSON: {error}")))
    }
}
