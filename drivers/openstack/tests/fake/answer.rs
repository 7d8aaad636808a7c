//! Answers in the forms of Neutron and Octavia.

use http_body_util::Full;
use hyper::Response;
use hyper::body::Bytes;
use serde_json::{Value, json};

pub(crate) struct Answer {
    status: u16,
    content_type: &'static str,
    body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(status: u16, body: impl Into<Value>) -> Self {
        Self { status, content_type: "application/json", body: body.into().to_string().into_bytes() }
    }

    pub(crate) fn empty(status: u16) -> Self {
        Self { status, content_type: "application/json", body: Vec::new() }
    }

    pub(crate) fn html(status: u16) -> Self {
        let body =
            format!("<html><body><h1>{status}</h1>The server is temporarily unavailable.</body></html>");
        Self { status, content_type: "text/html", body: body.into_bytes() }
    }

    /// The message of oslo.middleware.
    pub(crate) fn too_large() -> Self {
        Self { status: 413, content_type: "text/plain", body: b"Request is too large.".to_vec() }
    }

    pub(crate) fn is_success(&self) -> bool {
        self.status < 300
    }

    pub(crate) fn response(self) -> Response<Full<Bytes>> {
        Response::builder()
            .status(self.status)
            .header("content-type", self.content_type)
            .header("x-openstack-request-id", "req-of-the-fake")
            .body(Full::from(self.body))
            .unwrap()
    }
}

pub(crate) fn error(status: u16, kind: &str, message: &str) -> Answer {
    Answer::json(status, json!({ "NeutronError": { "type": kind, "message": message, "detail": "" } }))
}

/// A refusal of Octavia.
pub(crate) fn fault(status: u16, message: &str) -> Answer {
    Answer::json(status, json!({ "faultcode": "Client", "faultstring": message, "debuginfo": null }))
}

pub(crate) fn not_found(kind: &str, id: &str) -> Answer {
    error(404, kind, &format!("{id} could not be found."))
}
