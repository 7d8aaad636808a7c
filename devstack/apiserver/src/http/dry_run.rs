//! The parameter `dryRun`: a write that gets its response but is not stored.

use serde_json::json;

use crate::status::{Cause, Status};

/// Returns `true` if the values request a dry run. `All` is the only valid one; `options` names the options object
/// for the error, such as `PatchOptions`.
pub(super) fn wanted(values: &[String], options: &str) -> Result<bool, Status> {
    if values.iter().all(|value| value == "All") {
        return Ok(!values.is_empty());
    }
    let cause = Cause::unsupported("dryRun", &json!(values), &["All"]);
    Err(Status::invalid_kind("meta.k8s.io", options, "", &[cause]))
}
