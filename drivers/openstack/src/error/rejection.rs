//! Parses the error responses of services. Each service has its own JSON format, and proxies respond in HTML.

use std::fmt;

use serde::Deserialize;
use staffetta_driver::Reason;

/// The maximum length of an error message that is kept, in characters.
const MAX_TEXT: usize = 300;

/// A parsed error response of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The HTTP status.
    pub status: u16,
    /// The error type, from `NeutronError.type` in responses of Neutron; `None` if there is none, as in all responses of other services.
    pub kind: Option<String>,
    /// The error message of the service as one line, truncated to 300 characters. It may be empty.
    pub message: String,
}

impl Rejection {
    /// Parses an error response. The second value is `true` if the body has the format of an OpenStack service, and `false` if it is
    /// probably the page of a proxy.
    pub(super) fn parse(status: u16, body: &[u8]) -> (Self, bool) {
        let (kind, message) = match serde_json::from_slice(body) {
            Ok(ErrorBody { neutron: Some(NeutronErrorBody::Full { kind, message }), .. }) => {
                (Some(truncated(&kind)), message)
            }
            Ok(ErrorBody { neutron: Some(NeutronErrorBody::Text(message)), .. }) => (None, message),
            Ok(ErrorBody { keystone: Some(keystone), .. }) => (None, keystone.message),
            Ok(ErrorBody { faultstring: Some(message), .. }) => (None, message),
            Ok(ErrorBody { title: Some(title), description, .. }) => {
                (None, [title, description.unwrap_or_default()].join(" "))
            }
            _ => {
                let message = truncated(&without_tags(&String::from_utf8_lossy(body)));
                return (Self { status, kind: None, message }, false);
            }
        };
        (Self { status, kind, message: truncated(&message) }, true)
    }

    /// Returns the [`Reason`] of the driver error. It follows from Neutron's error type (`neutron_lib.exceptions`), otherwise from
    /// Octavia's message about a quota (Octavia has no types), otherwise from the status. The status alone does not suffice: 409 means both
    /// an exceeded quota and a conflict.
    pub(super) fn reason(&self) -> Reason {
        match self.kind.as_deref() {
            Some("OverQuota" | "SubnetPoolQuotaExceeded" | "QuotaResourceUnknown") => return Reason::Quota,
            Some(kind) if kind.starts_with("IpAddressGenerationFailure") => return Reason::NoAddress,
            Some("SubnetAllocationError" | "ExternalIpAddressExhausted") => return Reason::NoAddress,
            _ if self.message.starts_with("Quota has been met") => return Reason::Quota,
            _ => {}
        }
        match self.status {
            404 | 410 => Reason::NotFound,
            409 | 412 | 423 => Reason::Conflict,
            405 | 501 => Reason::Unsupported,
            408 | 413 | 429 | 500.. => Reason::Unavailable,
            _ => Reason::Refused,
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HTTP {}", self.status)?;
        if let Some(kind) = &self.kind {
            write!(f, " {kind}")?;
        }
        if !self.message.is_empty() {
            write!(f, ": {}", self.message)?;
        }
        Ok(())
    }
}

/// The error bodies of Neutron (`NeutronError`), of Keystone and its middleware (`error`), and of Octavia (`faultstring`, or `title` and
/// `description` for an unknown path).
#[derive(Deserialize)]
struct ErrorBody {
    #[serde(rename = "NeutronError")]
    neutron: Option<NeutronErrorBody>,
    #[serde(rename = "error")]
    keystone: Option<KeystoneErrorBody>,
    faultstring: Option<String>,
    title: Option<String>,
    description: Option<String>,
}

/// The value of `NeutronError`, whose form depends on the part of Neutron that rejects the request.
#[derive(Deserialize)]
#[serde(untagged)]
enum NeutronErrorBody {
    /// The usual form: the type of the error, such as `OverQuota`, and a message.
    Full {
        #[serde(rename = "type")]
        kind: String,
        message: String,
    },
    /// A message alone.
    Text(String),
}

/// The value of `error` in a response of Keystone or its middleware.
#[derive(Deserialize)]
struct KeystoneErrorBody {
    message: String,
}

/// Returns the text in the first 2400 characters of an HTML page, without the tags.
fn without_tags(html: &str) -> String {
    let mut text = String::new();
    let mut in_tag = false;
    for character in html.chars().take(8 * MAX_TEXT) {
        match character {
            '<' => in_tag = true,
            '>' if in_tag => {
                in_tag = false;
                text.push(' ');
            }
            other if !in_tag => text.push(other),
            _ => {}
        }
    }
    text
}

/// Returns `text` as one line of at most 300 characters, followed by `...` if it was longer.
pub(crate) fn truncated(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> (Option<String>, String) {
        let (rejection, _) = Rejection::parse(409, body.as_bytes());
        (rejection.kind, rejection.message)
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
    fn what_is_said_is_cut() {
        let (_, message) = read(&"ä".repeat(5000));
        assert_eq!(message.chars().count(), MAX_TEXT + 3);
        assert!(message.ends_with("..."));
    }

    fn of(status: u16, kind: Option<&str>, message: &str) -> Reason {
        Rejection { status, kind: kind.map(str::to_owned), message: message.to_owned() }.reason()
    }

    #[test]
    fn the_reason_of_a_conflict_follows_the_error_type() {
        assert_eq!(of(409, Some("OverQuota"), ""), Reason::Quota);
        assert_eq!(of(409, Some("IpAddressGenerationFailure"), ""), Reason::NoAddress);
        assert_eq!(of(409, Some("IpAddressGenerationFailureAllSubnets"), ""), Reason::NoAddress);
        assert_eq!(of(409, Some("NetworkInUse"), ""), Reason::Conflict);
        assert_eq!(of(409, None, "Load Balancer 1 is immutable and cannot be updated."), Reason::Conflict);
        assert_eq!(of(403, None, "Quota has been met for resources: listener"), Reason::Quota);
    }

    #[test]
    fn without_an_error_type_the_reason_follows_the_status() {
        for (status, reason) in [
            (400, Reason::Refused),
            (401, Reason::Refused),
            (403, Reason::Refused),
            (404, Reason::NotFound),
            (412, Reason::Conflict),
            (413, Reason::Unavailable),
            (429, Reason::Unavailable),
            (500, Reason::Unavailable),
            (501, Reason::Unsupported),
            (503, Reason::Unavailable),
        ] {
            assert_eq!(of(status, None, "<html>"), reason, "{status}");
        }
        assert_eq!(of(403, Some("PolicyNotAuthorized"), ""), Reason::Refused);
    }
}
