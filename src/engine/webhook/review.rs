//! The request of the API server and the response to it: `AdmissionReview` of `admission.k8s.io/v1`.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;
use serde_json::{Value, json};

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

/// The error of a request that is no `AdmissionReview` of `admission.k8s.io/v1`, or whose pod cannot be decoded. Its text quotes nothing of
/// the request.
#[derive(Debug, thiserror::Error)]
#[error("the request is no AdmissionReview of admission.k8s.io/v1 with a pod that can be decoded")]
pub(super) struct MalformedReview;

/// The response to an `AdmissionReview`. It always admits the object, changed or unchanged.
pub(super) struct ReviewAnswer {
    /// The JSON body of the response.
    pub(super) body: Vec<u8>,
    /// `true` if the response contains a JSON patch, which changes the pod.
    pub(super) patched: bool,
}

/// Answers the `AdmissionReview` in `body`. `patch` returns the JSON patch for a created pod, or `None` to admit it unchanged. Any other
/// object is admitted unchanged. Fails if `body` is no such review, or if its pod cannot be decoded.
pub(super) fn answer(
    body: &[u8],
    patch: impl FnOnce(&Pod) -> Option<Vec<Value>>,
) -> Result<ReviewAnswer, MalformedReview> {
    let review: Value = serde_json::from_slice(body).map_err(|_| MalformedReview)?;
    let request = &review["request"];
    if review["apiVersion"] != API_VERSION || review["kind"] != KIND || !request["uid"].is_string() {
        return Err(MalformedReview);
    }
    let is_pod = request["kind"] == json!({ "group": "", "version": "v1", "kind": "Pod" });
    let patch = if is_pod && request["operation"] == "CREATE" {
        patch(&Pod::deserialize(&request["object"]).map_err(|_| MalformedReview)?)
    } else {
        None
    };
    let (patched, mut response) = (patch.is_some(), json!({ "uid": request["uid"], "allowed": true }));
    if let Some(patch) = patch {
        response["patchType"] = json!("JSONPatch");
        // In Base64.
        response["patch"] = json!(ByteString(Value::from(patch).to_string().into_bytes()));
    }
    let answer = json!({ "apiVersion": API_VERSION, "kind": KIND, "response": response });
    Ok(ReviewAnswer { body: answer.to_string().into_bytes(), patched })
}

#[cfg(test)]
mod tests {
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
