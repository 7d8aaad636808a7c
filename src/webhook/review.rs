//! The request of the API server and the response to it: `AdmissionReview` of `admission.k8s.io/v1`.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

/// The error of a request that is no review of this version, or whose pod cannot be decoded. Its text quotes
/// nothing of the request.
#[derive(Debug, thiserror::Error)]
#[error("the request is no AdmissionReview of admission.k8s.io/v1 with a pod that can be decoded")]
pub(super) struct MalformedReview;

/// The body of a request: a review with the object that is to be admitted.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AdmissionReview<'r> {
    api_version: String,
    kind: String,
    #[serde(borrow)]
    request: AdmissionRequest<'r>,
}

/// The object and the operation of a review.
#[derive(Deserialize)]
struct AdmissionRequest<'r> {
    uid: String,
    kind: ReviewedKind,
    operation: String,
    #[serde(borrow)]
    object: Option<&'r RawValue>,
}

/// The group, version and kind of the object.
#[derive(Deserialize, PartialEq, Eq)]
struct ReviewedKind {
    group: String,
    version: String,
    kind: String,
}

/// The body of a response: a review with the decision.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AnsweredReview {
    api_version: &'static str,
    kind: &'static str,
    response: AdmissionResponse,
}

/// The decision about the object: always an admission, with a patch if it is changed.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AdmissionResponse {
    uid: String,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    /// The JSON patch, which is in Base64 in the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<ByteString>,
}

/// The response to a review, which always admits the object.
pub(super) struct ReviewAnswer {
    /// The JSON body of the response.
    pub(super) body: Vec<u8>,
    /// `true` if the object is changed.
    pub(super) patched: bool,
}

/// Answers the review in `body`. `patch` returns the JSON patch for a pod that is created. Any other object is admitted as it is.
pub(super) fn answer(
    body: &[u8],
    patch: impl FnOnce(&Pod) -> Option<Vec<Value>>,
) -> Result<ReviewAnswer, MalformedReview> {
    let review: AdmissionReview<'_> = serde_json::from_slice(body).map_err(|_| MalformedReview)?;
    if (review.api_version.as_str(), review.kind.as_str()) != (API_VERSION, KIND) {
        return Err(MalformedReview);
    }
    let AdmissionRequest { uid, kind, operation, object } = review.request;
    let is_pod = (kind.group.as_str(), kind.version.as_str(), kind.kind.as_str()) == ("", "v1", "Pod");
    let patch = match object.filter(|_| is_pod && operation == "CREATE") {
        Some(object) => patch(&serde_json::from_str(object.get()).map_err(|_| MalformedReview)?),
        None => None,
    };
    let patch = patch.map(|patch| ByteString(Value::from(patch).to_string().into_bytes()));
    let (patched, patch_type) = (patch.is_some(), patch.as_ref().map(|_| "JSONPatch"));
    let response = AdmissionResponse { uid, allowed: true, patch_type, patch };
    let answer = AnsweredReview { api_version: API_VERSION, kind: KIND, response };
    let body = serde_json::to_vec(&answer).map_err(|_| MalformedReview)?;
    Ok(ReviewAnswer { body, patched })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn review(kind: &str, operation: &str) -> Value {
        json!({
            "apiVersion": API_VERSION, "kind": KIND,
            "request": {
                "uid": "u-1", "operation": operation, "kind": { "group": "", "version": "v1", "kind": kind },
                "object": { "apiVersion": "v1", "kind": kind, "metadata": { "name": "web" } },
            },
        })
    }

    fn answered(review: &Value) -> Result<Value, MalformedReview> {
        let patch =
            |pod: &Pod| (pod.metadata.name.as_deref() == Some("web")).then(|| vec![json!({ "op": "add" })]);
        answer(review.to_string().as_bytes(), patch)
            .map(|answer| serde_json::from_slice(&answer.body).unwrap())
    }

    #[test]
    fn a_pod_that_is_created_is_admitted_with_its_patch_in_base64() {
        let answer = answered(&review("Pod", "CREATE")).unwrap();
        // [{"op":"add"}]
        let expected = json!({ "uid": "u-1", "allowed": true, "patchType": "JSONPatch", "patch": "W3sib3AiOiJhZGQifV0=" });
        assert_eq!(answer, json!({ "apiVersion": API_VERSION, "kind": KIND, "response": expected }));
    }

    #[test]
    fn everything_else_is_admitted_as_it_is() {
        for review in [review("Node", "CREATE"), review("Pod", "UPDATE")] {
            assert_eq!(answered(&review).unwrap()["response"], json!({ "uid": "u-1", "allowed": true }));
        }
        let deleted = json!({ "apiVersion": API_VERSION, "kind": KIND, "request": {
            "uid": "u-2", "operation": "DELETE", "kind": { "group": "", "version": "v1", "kind": "Pod" }, "object": null,
        } });
        assert_eq!(answered(&deleted).unwrap()["response"], json!({ "uid": "u-2", "allowed": true }));
    }

    #[test]
    fn a_malformed_review_is_rejected_and_not_quoted() {
        let mut undecodable = review("Pod", "CREATE");
        undecodable["request"]["object"]["spec"] = json!("secret");
        let mut other = review("Pod", "CREATE");
        other["apiVersion"] = json!("admission.k8s.io/v1beta1");
        for review in [undecodable, other, json!({ "kind": KIND }), json!("secret")] {
            let error = answered(&review).err().unwrap().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
        assert!(answer(b"\xff", |_| None).is_err());
    }
}
