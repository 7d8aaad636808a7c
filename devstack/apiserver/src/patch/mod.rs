//! The three kinds of patches. Each is a function from an object to the changed object.

mod lists;
mod merge;
mod strategic;

use serde_json::Value;

use crate::status::Status;
use crate::table::{Resource, Trait};

/// The kind of a PATCH, by its Content-Type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// The merge patch that knows the lists of Kubernetes.
    Strategic,
}

impl Form {
    /// Reads the Content-Type. Only what the resource takes is let through.
    pub(crate) fn of(content_type: &str, resource: &Resource) -> Result<Self, Status> {
        let media_type = content_type.split(';').next().unwrap_or_default().trim();
        match media_type {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" if !resource.has(Trait::Custom) => Ok(Self::Strategic),
            "application/apply-patch+yaml" => Err(unsupported(
                resource,
                "server-side apply is not served here; send a merge patch (kubectl apply without --server-side)",
            )),
            _ => Err(unsupported(
                resource,
                "the body of the request was in an unknown format - accepted media types include: ",
            )),
        }
    }
}

fn unsupported(resource: &Resource, why: &str) -> Status {
    let mut accepted = vec!["application/json-patch+json", "application/merge-patch+json"];
    if !resource.has(Trait::Custom) {
        accepted.push("application/strategic-merge-patch+json");
    }
    let list = if why.ends_with(": ") { accepted.join(", ") } else { String::new() };
    Status::of_code(415, format!("{why}{list}"))
}

/// The object as the patch wants it. Nothing is judged here but the patch itself.
pub(crate) fn apply(form: Form, resource: &Resource, object: &Value, patch: &[u8]) -> Result<Value, Status> {
    let unreadable = |error| Status::bad_request(format!("error decoding patch: {error}"));
    match form {
        Form::Json => {
            let patch: json_patch::Patch = serde_json::from_slice(patch).map_err(unreadable)?;
            let mut patched = object.clone();
            json_patch::patch(&mut patched, &patch)
                .map_err(|error| Status::of_code(422, error.to_string()))?;
            Ok(patched)
        }
        Form::Merge | Form::Strategic => {
            let patch: Value = serde_json::from_slice(patch).map_err(unreadable)?;
            if !patch.is_object() {
                return Err(Status::bad_request("the patch must be a JSON object"));
            }
            if form == Form::Merge {
                let mut patched = object.clone();
                merge::merge(&mut patched, &patch);
                return Ok(patched);
            }
            strategic::merge(&resource.kind, object, &patch)
                .map_err(|error| Status::unexplained(error.to_string()))
        }
    }
}
