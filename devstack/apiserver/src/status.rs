//! Responses that are not objects: `metav1.Status`, with the reasons, codes and causes of a real server.

use serde_json::{Map, Value, json};

use crate::table::Resource;

/// A refusal. Its [`code`](Status::code) is the HTTP status of the answer, its [`json`](Status::json) the body.
#[derive(Clone, Debug)]
pub(crate) struct Status {
    code: u16,
    reason: &'static str,
    message: String,
    details: Map<String, Value>,
}

/// One field that a request got wrong, as it stands in `details.causes` of a 422.
#[derive(Clone, Debug)]
pub(crate) struct Cause {
    reason: &'static str,
    field: String,
    message: String,
}

impl Cause {
    /// The field holds a value it may not hold.
    pub(crate) fn invalid(field: &str, value: &Value, why: &str) -> Self {
        Self {
            reason: "FieldValueInvalid",
            field: field.into(),
            message: format!("Invalid value: {value}: {why}"),
        }
    }

    /// The field may not be set, or not now.
    pub(crate) fn forbidden(field: &str, why: &str) -> Self {
        Self { reason: "FieldValueForbidden", field: field.into(), message: format!("Forbidden: {why}") }
    }

    /// The field holds a value that is none of those it may hold.
    pub(crate) fn unsupported(field: &str, value: &Value, supported: &[&str]) -> Self {
        let supported: Vec<_> = supported.iter().map(|value| format!("{value:?}")).collect();
        Self {
            reason: "FieldValueNotSupported",
            field: field.into(),
            message: format!("Unsupported value: {value}: supported values: {}", supported.join(", ")),
        }
    }

    /// The field is wrong for any reason.
    pub(crate) fn of_reason(reason: &'static str, field: &str, message: &str) -> Self {
        Self { reason, field: field.into(), message: message.into() }
    }

    /// The field must be set.
    pub(crate) fn required(field: &str, why: &str) -> Self {
        let message = if why.is_empty() { "Required value".into() } else { format!("Required value: {why}") };
        Self { reason: "FieldValueRequired", field: field.into(), message }
    }

    /// The field is larger than `limit` bytes.
    pub(crate) fn too_long(field: &str, limit: usize) -> Self {
        Self {
            reason: "FieldValueTooLong",
            field: field.into(),
            message: format!("Too long: may not be more than {limit} bytes"),
        }
    }
}

impl Status {
    /// A status of any code with the reason that a real server gives for that code.
    pub(crate) fn of_code(code: u16, message: impl Into<String>) -> Self {
        let reason = match code {
            400 => "BadRequest",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "NotFound",
            405 => "MethodNotAllowed",
            406 => "NotAcceptable",
            409 => "Conflict",
            410 => "Expired",
            413 => "RequestEntityTooLarge",
            415 => "UnsupportedMediaType",
            422 => "Invalid",
            429 => "TooManyRequests",
            500 => "InternalError",
            503 => "ServiceUnavailable",
            504 => "Timeout",
            _ => "Unknown",
        };
        Self { code, reason, message: message.into(), details: Map::new() }
    }

    /// 500 of the kind that a real server gives no reason for.
    pub(crate) fn unexplained(message: impl Into<String>) -> Self {
        Self { reason: "", ..Self::of_code(500, message) }
    }

    /// 422: a patch whose result is no object of the resource.
    pub(crate) fn unreadable_patch(resource: &Resource, name: &str, why: &str) -> Self {
        Self::invalid(resource, name, &[Cause::invalid("patch", &"".into(), why)])
    }

    /// 400: the request cannot be understood.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::of_code(400, message)
    }

    /// 404 for an object of a served resource.
    pub(crate) fn not_found(resource: &Resource, name: &str) -> Self {
        Self::of_code(404, format!("{} \"{name}\" not found", resource.qualified())).about(
            name,
            &resource.group,
            &resource.plural,
        )
    }

    /// 404 for a path that leads nowhere.
    pub(crate) fn no_such_path() -> Self {
        Self::of_code(404, "the server could not find the requested resource")
    }

    /// 405: the resource is served, but not with this verb.
    pub(crate) fn method_not_allowed() -> Self {
        Self::of_code(405, "the server does not allow this method on the requested resource")
    }

    /// 409: an object of that name is there.
    pub(crate) fn already_exists(resource: &Resource, name: &str) -> Self {
        let mut status = Self::of_code(409, format!("{} \"{name}\" already exists", resource.qualified()))
            .about(name, &resource.group, &resource.plural);
        status.reason = "AlreadyExists";
        status
    }

    /// 409: the request was made against another state of the object.
    pub(crate) fn conflict(resource: &Resource, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", resource.qualified());
        Self::of_code(409, message).about(name, &resource.group, &resource.plural)
    }

    /// 409 for a stale resourceVersion.
    pub(crate) fn stale(resource: &Resource, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(resource, name, why)
    }

    /// 422: fields of an object are wrong. `causes` is not empty.
    pub(crate) fn invalid(resource: &Resource, name: &str, causes: &[Cause]) -> Self {
        Self::invalid_kind(&resource.group, &resource.kind, name, causes)
    }

    /// 422 for what is not an object of the table: the options of a list or a deletion, a Scale.
    pub(crate) fn invalid_kind(group: &str, kind: &str, name: &str, causes: &[Cause]) -> Self {
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let mut sentences: Vec<_> = causes.iter().map(|c| format!("{}: {}", c.field, c.message)).collect();
        let all =
            if sentences.len() == 1 { sentences.remove(0) } else { format!("[{}]", sentences.join(", ")) };
        let causes: Vec<_> = causes
            .iter()
            .map(|c| json!({"reason": c.reason, "message": c.message, "field": c.field}))
            .collect();
        Self::of_code(422, format!("{qualified} \"{name}\" is invalid: {all}"))
            .about(name, group, kind)
            .detail("causes", Value::from(causes))
    }

    /// 422: the options of a list or a watch contradict each other.
    pub(crate) fn invalid_options(cause: Cause) -> Self {
        Self::invalid_kind("meta.k8s.io", "ListOptions", "", &[cause])
    }

    /// 410: the version asked for has left the event log.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::of_code(410, message)
    }

    /// 504: the version asked for lies in the future.
    pub(crate) fn version_too_large(asked: u64, current: u64) -> Self {
        let cause = json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
        Self::of_code(504, format!("Too large resource version: {asked}, current: {current}"))
            .detail("causes", json!([cause]))
            .detail("retryAfterSeconds", json!(1))
    }

    /// Says which object the refusal is about.
    pub(crate) fn about(self, name: &str, group: &str, kind: &str) -> Self {
        let mut status = self;
        for (field, value) in [("name", name), ("group", group), ("kind", kind)] {
            if !value.is_empty() {
                status = status.detail(field, value.into());
            }
        }
        status
    }

    /// Adds one entry of `details`.
    pub(crate) fn detail(mut self, field: &str, value: Value) -> Self {
        self.details.insert(field.into(), value);
        self
    }

    /// The HTTP status.
    pub(crate) fn code(&self) -> u16 {
        self.code
    }

    /// Seconds to wait before the next try, where the server asks for that.
    pub(crate) fn retry_after(&self) -> Option<u64> {
        self.details.get("retryAfterSeconds").and_then(Value::as_u64)
    }

    /// The body of the answer.
    pub(crate) fn json(&self) -> Value {
        let mut body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            body["reason"] = self.reason.into();
        }
        if !self.details.is_empty() {
            body["details"] = Value::Object(self.details.clone());
        }
        body
    }
}

/// The answer to a DELETE that removed an object of a resource that is not echoed.
pub(crate) fn deleted(resource: &Resource, name: &str, uid: &str) -> Value {
    let mut details = json!({"name": name, "kind": resource.plural, "uid": uid});
    if !resource.group.is_empty() {
        details["group"] = resource.group.clone().into();
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table;

    #[test]
    fn an_invalid_object_names_every_cause() {
        let deployments = table::builtin("apps", "deployments");
        let causes = [Cause::required("spec.selector", ""), Cause::forbidden("metadata.finalizers", "why")];
        let body = Status::invalid(&deployments, "web", &causes).json();
        assert_eq!(
            body["message"],
            "Deployment.apps \"web\" is invalid: [spec.selector: Required value, metadata.finalizers: Forbidden: why]"
        );
        assert_eq!(body["details"]["causes"][1]["reason"], "FieldValueForbidden");
        assert_eq!(body["details"]["kind"], "Deployment");
    }

    #[test]
    fn a_missing_object_is_named_with_its_group() {
        let body = Status::not_found(&table::builtin("apps", "deployments"), "web").json();
        assert_eq!(body["message"], "deployments.apps \"web\" not found");
        assert_eq!(body["code"], 404);
    }
}
