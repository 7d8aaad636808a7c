//! Simulates a Neutron without the tags extension, by changes of requests and responses.

use http::{Method, StatusCode};
use serde_json::Value;

use super::fault::Fault;

/// The aliases of the extensions that are missing.
const ALIASES: [&str; 4] = [
    "standard-attr-tag",
    "tag-creation",
    "tag-ports-during-bulk-creation",
    "standard-attr-tag-vlan-transparency",
];

/// The refusal of a Neutron without tags for a call that uses them.
pub(super) fn refusal(method: &Method, path: &str, body: &[u8]) -> Option<Fault> {
    if path.contains("/tags") {
        return Some(Fault::Answer {
            status: StatusCode::NOT_FOUND,
            retry_after: None,
            body: NOT_FOUND.into(),
        });
    }
    if *method != Method::POST && *method != Method::PUT {
        return None;
    }
    let speaks = serde_json::from_slice(body)
        .is_ok_and(|body: Value| things(&body).any(|thing| thing.get("tags").is_some()));
    let message = "Unrecognized attribute(s) 'tags'";
    speaks.then(|| Fault::neutron(StatusCode::BAD_REQUEST, "HTTPBadRequest", message))
}

/// Takes away from an answer what such a Neutron would not have said.
pub(super) fn strip(answer: &[u8]) -> Option<Vec<u8>> {
    let mut answer: Value = serde_json::from_slice(answer).ok()?;
    if let Some(extensions) = answer.get_mut("extensions").and_then(Value::as_array_mut) {
        extensions.retain(|extension| !ALIASES.contains(&extension["alias"].as_str().unwrap_or_default()));
    }
    for (_, value) in answer.as_object_mut()? {
        let things = match value {
            Value::Array(things) => things.iter_mut().collect(),
            one => vec![one],
        };
        for thing in things {
            thing.as_object_mut().map(|fields| fields.remove("tags"));
        }
    }
    Some(answer.to_string().into_bytes())
}

/// The things in an envelope: one, or a list.
fn things(envelope: &Value) -> impl Iterator<Item = &Value> {
    let values = envelope.as_object().into_iter().flat_map(|fields| fields.values());
    values.flat_map(|value| value.as_array().map_or_else(|| vec![value], |things| things.iter().collect()))
}

const NOT_FOUND: &str = r#"{"NeutronError": {"type": "HTTPNotFound", "message": "The resource could not be found.", "detail": ""}}"#;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tags_are_neither_listed_nor_taken_nor_shown() {
        let port = br#"{"port":{"id":"1","tags":["a"]}}"#;
        assert!(refusal(&Method::POST, "/v2.0/ports", port).is_some());
        assert!(refusal(&Method::POST, "/v2.0/ports", br#"{"ports":[{"tags":[]}]}"#).is_some());
        assert!(refusal(&Method::PUT, "/v2.0/ports/1/tags", b"").is_some());
        assert_eq!(refusal(&Method::POST, "/v2.0/ports", br#"{"port":{"id":"1"}}"#), None);
        assert_eq!(strip(port).unwrap(), br#"{"port":{"id":"1"}}"#);
        let extensions = json!({ "extensions": [{ "alias": "trunk" }, { "alias": "standard-attr-tag" }] });
        let left = strip(extensions.to_string().as_bytes()).unwrap();
        assert_eq!(left, br#"{"extensions":[{"alias":"trunk"}]}"#);
    }
}
