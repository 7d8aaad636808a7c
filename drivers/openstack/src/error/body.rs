//! The bodies of refusals: each service has a form of its own, and what stands before it answers in HTML.

use serde::Deserialize;

use super::{Problem, Refusal};

/// How much of what a service says is kept, in characters.
const KEPT: usize = 300;

/// What an answer with this status and body says. Of a page that no service writes it is not believed that a thing does not
/// exist: something that stands before the service does not find the service.
pub(crate) fn refused(status: u16, body: &[u8]) -> Problem {
    let (refusal, is_of_a_service) = refusal(status, body);
    if matches!(status, 404 | 410) && !is_of_a_service {
        return Problem::Unreachable(format!("{refusal}; it is not the service that says so"));
    }
    Problem::Refused(refusal)
}

/// What it says, and whether it has the form in which a service says it.
fn refusal(status: u16, body: &[u8]) -> (Refusal, bool) {
    let (kind, message) = match serde_json::from_slice(body) {
        Ok(Form { neutron: Some(Neutron::Full { kind, message }), .. }) => (Some(kind), message),
        Ok(Form { neutron: Some(Neutron::Text(message)), .. }) => (None, message),
        Ok(Form { keystone: Some(keystone), .. }) => (None, keystone.message),
        Ok(Form { faultstring: Some(message), .. }) => (None, message),
        Ok(Form { title: Some(title), description, .. }) => {
            (None, [title, description.unwrap_or_default()].join(" "))
        }
        _ => {
            let message = bounded(&plain(&String::from_utf8_lossy(body)));
            return (Refusal { status, kind: None, message }, false);
        }
    };
    (Refusal { status, kind: kind.map(|kind| bounded(&kind)), message: bounded(&message) }, true)
}

/// Neutron: `NeutronError`. Keystone, and its middleware before the others: `error`. Octavia: `faultstring`, or `title`
/// for a path that does not exist.
#[derive(Deserialize)]
struct Form {
    #[serde(rename = "NeutronError")]
    neutron: Option<Neutron>,
    #[serde(rename = "error")]
    keystone: Option<Keystone>,
    faultstring: Option<String>,
    title: Option<String>,
    description: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Neutron {
    Full {
        #[serde(rename = "type")]
        kind: String,
        message: String,
    },
    Text(String),
}

#[derive(Deserialize)]
struct Keystone {
    message: String,
}

/// What a person would read of it: a page of HTML without its tags, in one line.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut inside = false;
    for character in text.chars().take(8 * KEPT) {
        match character {
            '<' => inside = true,
            '>' if inside => {
                inside = false;
                plain.push(' ');
            }
            other if !inside => plain.push(other),
            _ => {}
        }
    }
    plain
}

/// One line of at most [`KEPT`] characters.
pub(crate) fn bounded(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(KEPT) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> (Option<String>, String) {
        let (refusal, _) = refusal(409, body.as_bytes());
        (refusal.kind, refusal.message)
    }

    #[test]
    fn each_service_is_understood_in_its_own_form() {
        let cases = [
            (
                r#"{"NeutronError":{"type":"OverQuota","message":"Quota exceeded","detail":""}}"#,
                Some("OverQuota"),
                "Quota exceeded",
            ),
            (r#"{"NeutronError":"an old form"}"#, None, "an old form"),
            (r#"{"error":{"code":401,"message":"who?","title":"Unauthorized"}}"#, None, "who?"),
            (r#"{"faultcode":"Client","faultstring":"immutable","debuginfo":null}"#, None, "immutable"),
            (r#"{"code":404,"title":"Not Found","description":""}"#, None, "Not Found"),
            (
                "<html><head><title>503</title></head>\n<body>come  later</body></html>",
                None,
                "503 come later",
            ),
            ("", None, ""),
            (r#"{"other":1}"#, None, r#"{"other":1}"#),
        ];
        for (body, kind, message) in cases {
            assert_eq!(read(body), (kind.map(str::to_owned), message.to_owned()), "{body}");
        }
    }

    #[test]
    fn that_a_thing_does_not_exist_is_believed_of_services_alone() {
        for body in [
            r#"{"NeutronError":{"type":"PortNotFound","message":"no","detail":""}}"#,
            r#"{"faultcode":"Client","faultstring":"Load Balancer 1 not found.","debuginfo":null}"#,
            r#"{"error":{"code":404,"message":"Could not find it","title":"Not Found"}}"#,
        ] {
            assert!(matches!(refused(404, body.as_bytes()), Problem::Refused(_)), "{body}");
        }
        for body in ["", "<html><h1>404</h1></html>", r#"{"other":1}"#] {
            assert!(matches!(refused(404, body.as_bytes()), Problem::Unreachable(_)), "{body}");
            assert!(matches!(refused(403, body.as_bytes()), Problem::Refused(_)), "{body}");
        }
    }

    #[test]
    fn what_is_said_is_cut() {
        let (_, message) = read(&"ä".repeat(5000));
        assert_eq!(message.chars().count(), KEPT + 3);
        assert!(message.ends_with("..."));
    }
}
