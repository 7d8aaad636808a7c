//! What a request asks for, and the form in which it changes nothing. Pure.

use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Uri};
use serde_json::{Value, json};

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// To be told something: it is asked as it is.
    Read,
    /// To write something, which the server can do without effect.
    Write(Target),
    /// Something that no server does without effect.
    Other,
}

/// What is to be written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) namespace: Option<String>,
    pub(super) plural: String,
    /// None for a collection.
    pub(super) name: Option<String>,
    pub(super) subresource: Option<String>,
}

/// Subresources that reach through the server to something else.
const CONNECTIONS: [&str; 4] = ["attach", "exec", "portforward", "proxy"];

/// The groups whose objects are questions: what is created there is answered and not kept.
const QUESTIONS: [&str; 2] = ["authentication.k8s.io", "authorization.k8s.io"];

impl Asked {
    pub(super) fn of(method: &Method, uri: &Uri) -> Self {
        let steps: Vec<_> = uri.path().split('/').filter(|step| !step.is_empty()).collect();
        let (group, steps) = match steps.as_slice() {
            ["api", _, steps @ ..] => ("", steps),
            ["apis", group, _, steps @ ..] => (*group, steps),
            _ => ("", [].as_slice()),
        };
        let target = target(steps);
        let connects = |target: &Target| {
            target.subresource.as_deref().is_some_and(|subresource| CONNECTIONS.contains(&subresource))
        };
        let reads = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
        match target {
            Some(target) if connects(&target) => Self::Other,
            _ if reads => Self::Read,
            Some(_) if QUESTIONS.contains(&group) && *method == Method::POST => Self::Read,
            Some(target) if [Method::POST, Method::PUT, Method::PATCH, Method::DELETE].contains(method) => {
                Self::Write(target)
            }
            _ => Self::Other,
        }
    }
}

fn target(steps: &[&str]) -> Option<Target> {
    let (namespace, steps) = match steps {
        // `namespaces/NAME` and its subresources are about the namespace itself.
        ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => (None, steps),
        ["namespaces", namespace, rest @ ..] => (Some(*namespace), rest),
        _ => (None, steps),
    };
    let text = |step: &&str| (*step).to_owned();
    Some(Target {
        namespace: namespace.map(str::to_owned),
        plural: steps.first().map(text)?,
        name: steps.get(1).map(text),
        // A proxy goes on behind its name.
        subresource: steps.get(2).map(text),
    })
}

/// The same request with `dryRun=All`, whose answer is the whole object. None when its body cannot say so: beside a body, the
/// server does not look at the query of a deletion.
pub(super) fn dry(parts: &Parts, body: &[u8]) -> Option<(Parts, Vec<u8>)> {
    let mut parts = parts.clone();
    let query = parts.uri.query().unwrap_or_default().split('&');
    let others = query.filter(|pair| !pair.is_empty() && pair.split('=').next() != Some("dryRun"));
    let query: Vec<_> = others.chain(["dryRun=All"]).collect();
    parts.uri = with_query(&parts.uri, &query.join("&"))?;
    parts.headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    let mut body = body.to_vec();
    if parts.method == Method::DELETE && !body.is_empty() {
        let mut options: Value = serde_json::from_slice(&body).ok().filter(Value::is_object)?;
        options["dryRun"] = json!(["All"]);
        body = options.to_string().into_bytes();
        parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        parts.headers.remove(CONTENT_LENGTH);
    }
    Some((parts, body))
}

/// A request that answers the object to which `parts` is about to do something. An empty patch needs no other permission
/// than the patch itself.
pub(super) fn before(parts: &Parts) -> Option<(Parts, Vec<u8>)> {
    let mut parts = parts.clone();
    parts.headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    parts.headers.remove(CONTENT_LENGTH);
    if parts.method == Method::PATCH {
        parts.uri = with_query(&parts.uri, "dryRun=All")?;
        parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/merge-patch+json"));
        return Some((parts, b"{}".to_vec()));
    }
    read(&parts)
}

/// A request that reads what `parts` is about.
pub(super) fn read(parts: &Parts) -> Option<(Parts, Vec<u8>)> {
    let mut parts = parts.clone();
    parts.method = Method::GET;
    parts.uri = with_query(&parts.uri, "")?;
    parts.headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    parts.headers.remove(CONTENT_TYPE);
    parts.headers.remove(CONTENT_LENGTH);
    Some((parts, Vec::new()))
}

fn with_query(uri: &Uri, query: &str) -> Option<Uri> {
    let mut parts = uri.clone().into_parts();
    let text = if query.is_empty() { uri.path().to_owned() } else { format!("{}?{query}", uri.path()) };
    parts.path_and_query = Some(text.parse::<PathAndQuery>().ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn asked(method: &str, path: &str) -> Asked {
        Asked::of(&method.parse().unwrap(), &path.parse().unwrap())
    }

    fn writes(method: &str, path: &str) -> String {
        match asked(method, path) {
            Asked::Write(Target { namespace, plural, name, subresource }) => {
                [namespace, Some(plural), name, subresource].map(|part| part.unwrap_or("-".into())).join(" ")
            }
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn every_method_that_writes_is_a_write_of_its_target() {
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
    fn reads_and_questions_are_asked_as_they_are() {
        for (method, path) in [
            ("GET", "/api/v1/pods?watch=true"),
            ("HEAD", "/api/v1/namespaces/shop/pods/web"),
            ("GET", "/version"),
            ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
        ] {
            assert_eq!(asked(method, path), Asked::Read, "{method} {path}");
        }
    }

    #[test]
    fn what_cannot_be_done_without_effect_is_neither() {
        for (method, path) in [
            ("GET", "/api/v1/namespaces/shop/pods/web/exec?command=ls"),
            ("POST", "/api/v1/namespaces/shop/pods/web/portforward"),
            ("GET", "/api/v1/namespaces/shop/services/web/proxy/some/path"),
            ("POST", "/healthz"),
            ("POST", "/apis/example.com"),
            ("BREW", "/api/v1/namespaces/shop/pods"),
        ] {
            assert_eq!(asked(method, path), Asked::Other, "{method} {path}");
        }
    }

    fn parts(method: &str, uri: &str) -> Parts {
        Request::builder().method(method).uri(uri).header(CONTENT_LENGTH, 7).body(()).unwrap().into_parts().0
    }

    #[test]
    fn the_dry_form_says_so_in_the_query_whatever_was_said_there_before() {
        for (uri, expected) in [
            ("/api/v1/nodes/n1", "/api/v1/nodes/n1?dryRun=All"),
            ("/api/v1/nodes/n1?", "/api/v1/nodes/n1?dryRun=All"),
            ("/api/v1/nodes/n1?force=true&dryRun=&dryRun=None", "/api/v1/nodes/n1?force=true&dryRun=All"),
        ] {
            let (dry, body) = dry(&parts("PATCH", uri), b"{}").unwrap();
            assert_eq!((dry.uri.to_string().as_str(), body.as_slice()), (expected, &b"{}"[..]));
            assert_eq!(dry.headers[ACCEPT], "application/json");
        }
    }

    #[test]
    fn a_deletion_with_a_body_says_so_there_too_or_is_not_sent() {
        let delete = parts("DELETE", "/api/v1/nodes/n1");
        let (_, body) = dry(&delete, br#"{"gracePeriodSeconds":0,"dryRun":[]}"#).unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body, json!({ "gracePeriodSeconds": 0, "dryRun": ["All"] }));
        assert_eq!(dry(&delete, b"").unwrap().1, b"");
        for strange in [&b"k8s\0protobuf"[..], b"[]"] {
            assert!(dry(&delete, strange).is_none(), "{strange:?}");
        }
    }

    #[test]
    fn what_was_there_is_asked_without_effect() {
        let (patch, body) = before(&parts("PATCH", "/api/v1/nodes/n1?fieldManager=m")).unwrap();
        assert_eq!(
            (patch.method, patch.uri.to_string().as_str()),
            (Method::PATCH, "/api/v1/nodes/n1?dryRun=All")
        );
        assert_eq!(
            (patch.headers[CONTENT_TYPE].as_bytes(), body.as_slice()),
            (&b"application/merge-patch+json"[..], &b"{}"[..])
        );
        let (get, body) = before(&parts("PUT", "/api/v1/nodes/n1?fieldManager=m")).unwrap();
        assert_eq!(
            (get.method, get.uri.to_string().as_str(), body.len()),
            (Method::GET, "/api/v1/nodes/n1", 0)
        );
    }
}
