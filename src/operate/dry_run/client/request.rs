//! Classifies requests, and converts writes to the form in which they change nothing. This module does no I/O.

use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Method, Uri};
use serde_json::{Value, json};

/// The effect of a request on the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    /// The request changes nothing, and is sent unchanged.
    Read,
    /// The request writes something, and the server can process it as a dry run.
    Write(WriteTarget),
    /// The request may have an effect, and the server has no dry run for it.
    Unsupported,
}

/// The object or collection that a request writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct WriteTarget {
    /// The namespace of the object; `None` for a cluster-scoped object.
    pub(super) namespace: Option<String>,
    /// The plural name of the resource, such as `pods`.
    pub(super) plural: String,
    /// The name of the object; `None` for a collection.
    pub(super) name: Option<String>,
    /// The subresource, such as `status`; `None` for the object itself.
    pub(super) subresource: Option<String>,
}

impl WriteTarget {
    /// Returns `true` for an object or its status, and `false` for a collection and for other subresources.
    pub(super) fn is_object(&self) -> bool {
        self.name.is_some() && matches!(self.subresource.as_deref(), None | Some("status"))
    }
}

/// The subresources that connect a client to a pod, service or node through the API server. They have no dry run.
const CONNECTIONS: [&str; 4] = ["attach", "exec", "portforward", "proxy"];

/// API groups whose objects are queries: the server responds to a POST and stores nothing.
const REVIEWS: [&str; 2] = ["authentication.k8s.io", "authorization.k8s.io"];

impl RequestKind {
    /// Classifies a request by its method and path.
    pub(super) fn of(method: &Method, uri: &Uri) -> Self {
        let segments: Vec<_> = uri.path().split('/').filter(|segment| !segment.is_empty()).collect();
        let (group, segments) = match segments.as_slice() {
            ["api", _, segments @ ..] => ("", segments),
            ["apis", group, _, segments @ ..] => (*group, segments),
            _ => ("", [].as_slice()),
        };
        let target = target(segments);
        let connects = |target: &WriteTarget| {
            target.subresource.as_deref().is_some_and(|subresource| CONNECTIONS.contains(&subresource))
        };
        let reads = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
        match target {
            Some(target) if connects(&target) => Self::Unsupported,
            _ if reads => Self::Read,
            Some(_) if REVIEWS.contains(&group) && *method == Method::POST => Self::Read,
            Some(target) if [Method::POST, Method::PUT, Method::PATCH, Method::DELETE].contains(method) => {
                Self::Write(target)
            }
            _ => Self::Unsupported,
        }
    }
}

/// Returns the object or collection of a path, from the segments after the API version; `None` if there are no segments.
fn target(segments: &[&str]) -> Option<WriteTarget> {
    let (namespace, segments) = match segments {
        // `namespaces/NAME` and its subresources write the namespace itself.
        ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => (None, segments),
        ["namespaces", namespace, rest @ ..] => (Some(*namespace), rest),
        _ => (None, segments),
    };
    let text = |segment: &&str| (*segment).to_owned();
    Some(WriteTarget {
        namespace: namespace.map(str::to_owned),
        plural: segments.first().map(text)?,
        name: segments.get(1).map(text),
        // The path of a proxy continues after its name.
        subresource: segments.get(2).map(text),
    })
}

/// Returns a request with `dryRun=All` added. For a DELETE with a body, the option is also set in the body, because the server then ignores
/// the query. Returns `None` if that body is not a JSON object.
pub(super) fn as_dry_run(parts: &Parts, body: &[u8]) -> Option<(Parts, Vec<u8>)> {
    let query = parts.uri.query().unwrap_or_default().split('&');
    let others = query.filter(|pair| !pair.is_empty() && pair.split('=').next() != Some("dryRun"));
    let query: Vec<_> = others.chain(["dryRun=All"]).collect();
    let mut parts = with_query(parts, &query.join("&"))?;
    let mut body = body.to_vec();
    if parts.method == Method::DELETE && !body.is_empty() {
        let mut options: Value = serde_json::from_slice(&body).ok().filter(Value::is_object)?;
        options["dryRun"] = json!(["All"]);
        body = options.to_string().into_bytes();
        parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    Some((parts, body))
}

/// Returns a dry run of an empty patch in place of a PATCH; `None` for other methods. The empty patch returns the current object, and
/// needs only the permission that the original patch needs.
pub(super) fn as_empty_patch(parts: &Parts) -> Option<(Parts, Vec<u8>)> {
    if parts.method != Method::PATCH {
        return None;
    }
    let mut parts = with_query(parts, "dryRun=All")?;
    parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/merge-patch+json"));
    Some((parts, b"{}".to_vec()))
}

/// Returns a GET request, without query and body, for the object that a request writes; `None` if the path alone is not a valid URI.
pub(super) fn as_read(parts: &Parts) -> Option<(Parts, Vec<u8>)> {
    let mut parts = with_query(parts, "")?;
    parts.method = Method::GET;
    parts.headers.remove(CONTENT_TYPE);
    Some((parts, Vec::new()))
}

/// Returns the head of a request with its query replaced by `query`. The new head asks for JSON, and has no content length, because the new
/// body may have another length. Returns `None` if `query` is not valid in a URI.
fn with_query(parts: &Parts, query: &str) -> Option<Parts> {
    let mut parts = parts.clone();
    let separator = if query.is_empty() { "" } else { "?" };
    parts.uri = format!("{}{separator}{query}", parts.uri.path()).parse().ok()?;
    parts.headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    parts.headers.remove(CONTENT_LENGTH);
    Some(parts)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn kind(method: &str, path: &str) -> RequestKind {
        RequestKind::of(&method.parse().unwrap(), &path.parse().unwrap())
    }

    fn writes(method: &str, path: &str) -> String {
        match kind(method, path) {
            RequestKind::Write(WriteTarget { namespace, plural, name, subresource }) => {
                [namespace, Some(plural), name, subresource].map(|part| part.unwrap_or("-".into())).join(" ")
            }
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn each_method_that_writes_has_its_target() {
        for (method, path, expected) in [
            ("POST", "/api/v1/namespaces/shop/pods", "shop pods - -"),
            ("PATCH", "/api/v1/namespaces/shop/pods/web?force=true", "shop pods web -"),
            ("PUT", "/api/v1/namespaces/shop/services/web/status", "shop services web status"),
            ("DELETE", "/apis/apps/v1/namespaces/shop/deployments/web", "shop deployments web -"),
            ("DELETE", "/api/v1/namespaces/shop/pods", "shop pods - -"),
            ("POST", "/api/v1/namespaces/shop/pods/web/eviction", "shop pods web eviction"),
            ("PUT", "/api/v1/namespaces/shop/finalize", "- namespaces shop finalize"),
            ("DELETE", "/api/v1/namespaces/shop", "- namespaces shop -"),
            ("PATCH", "/api/v1/nodes/n1", "- nodes n1 -"),
        ] {
            assert_eq!(writes(method, path), expected, "{method} {path}");
        }
    }

    #[test]
    fn reads_and_reviews_are_sent_as_they_are() {
        for (method, path) in [
            ("GET", "/api/v1/pods?watch=true"),
            ("HEAD", "/api/v1/namespaces/shop/pods/web"),
            ("GET", "/version"),
            ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
        ] {
            assert_eq!(kind(method, path), RequestKind::Read, "{method} {path}");
        }
    }

    #[test]
    fn calls_that_cannot_be_made_without_effect_are_unsupported() {
        for (method, path) in [
            ("GET", "/api/v1/namespaces/shop/pods/web/exec?command=ls"),
            ("POST", "/api/v1/namespaces/shop/pods/web/portforward"),
            ("GET", "/api/v1/namespaces/shop/services/web/proxy/some/path"),
            ("POST", "/healthz"),
            ("POST", "/apis/example.com"),
            ("BREW", "/api/v1/namespaces/shop/pods"),
        ] {
            assert_eq!(kind(method, path), RequestKind::Unsupported, "{method} {path}");
        }
    }

    fn parts(method: &str, uri: &str) -> Parts {
        Request::builder().method(method).uri(uri).header(CONTENT_LENGTH, 7).body(()).unwrap().into_parts().0
    }

    #[test]
    fn the_query_of_a_dry_run_has_the_option_once() {
        for (uri, expected) in [
            ("/api/v1/nodes/n1", "/api/v1/nodes/n1?dryRun=All"),
            ("/api/v1/nodes/n1?", "/api/v1/nodes/n1?dryRun=All"),
            ("/api/v1/nodes/n1?force=true&dryRun=&dryRun=None", "/api/v1/nodes/n1?force=true&dryRun=All"),
        ] {
            let (sent, body) = as_dry_run(&parts("PATCH", uri), b"{}").unwrap();
            assert_eq!((sent.uri.to_string().as_str(), body.as_slice()), (expected, &b"{}"[..]));
            assert_eq!(sent.headers[ACCEPT], "application/json");
        }
    }

    #[test]
    fn the_body_of_a_deletion_has_the_option_too_or_it_is_not_sent() {
        let delete = parts("DELETE", "/api/v1/nodes/n1");
        let (_, body) = as_dry_run(&delete, br#"{"gracePeriodSeconds":0,"dryRun":[]}"#).unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body, json!({ "gracePeriodSeconds": 0, "dryRun": ["All"] }));
        assert_eq!(as_dry_run(&delete, b"").unwrap().1, b"");
        for strange in [&b"k8s\0protobuf"[..], b"[]"] {
            assert!(as_dry_run(&delete, strange).is_none(), "{strange:?}");
        }
    }

    #[test]
    fn the_present_object_is_read_without_effect() {
        let (patch, body) = as_empty_patch(&parts("PATCH", "/api/v1/nodes/n1?fieldManager=m")).unwrap();
        assert_eq!(
            (patch.method, patch.uri.to_string().as_str()),
            (Method::PATCH, "/api/v1/nodes/n1?dryRun=All")
        );
        assert_eq!(
            (patch.headers[CONTENT_TYPE].as_bytes(), body.as_slice()),
            (&b"application/merge-patch+json"[..], &b"{}"[..])
        );
        let (get, body) = as_read(&parts("PUT", "/api/v1/nodes/n1?fieldManager=m")).unwrap();
        assert_eq!(
            (get.method, get.uri.to_string().as_str(), body.len()),
            (Method::GET, "/api/v1/nodes/n1", 0)
        );
    }
}
