//! Handles a request: parses its bytes, applies its fault, and writes the response.

use std::future::pending;
use std::sync::Arc;
use std::time::Instant;

use axum::body::Bytes;
use http::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION, WWW_AUTHENTICATE,
};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use serde_json::Value;
use tokio::time::sleep;

use super::shared::Shared;
use crate::fault::Fault;
use crate::restconf::{self, Answer, Asked, Problem, YANG_JSON};

/// The maximum length of a request body, in bytes.
const MOST: usize = 1 << 20;

/// The connection ends without an answer.
#[derive(Debug, thiserror::Error)]
#[error("the connection was chosen to end here")]
pub(super) struct Cut;

/// Answers a request, or meets the fault that waits for it.
pub(super) async fn handle(
    device: &Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Cut> {
    let (head, body) = request.into_parts();
    let Ok(body) = Limited::new(body, MOST).collect().await else { return Err(Cut) };
    let body = body.to_bytes();
    let asked = Asked {
        method: head.method.as_str(),
        path: head.uri.path(),
        query: head.uri.query().unwrap_or_default(),
        authorization: header(&head.headers, &AUTHORIZATION),
        accept: header(&head.headers, &ACCEPT),
        content_type: header(&head.headers, &CONTENT_TYPE),
        body: &body,
    };
    let answer = || restconf::answer(&mut device.machine.lock(), &asked, Instant::now());
    let fault = restconf::fault(&mut device.machine.lock(), &asked);
    let answer = match fault {
        None => answer(),
        Some(Fault::Refuse { code, tag }) => {
            let form = device.machine.lock().iox.options.style.error;
            Problem::new(code, &tag, "this request was chosen to fail".into()).answer(form)
        }
        Some(Fault::Answer { code, body }) => {
            Answer { content_type: Some(YANG_JSON), body, ..Answer::code(code) }
        }
        Some(Fault::Delay(time)) => {
            sleep(time).await;
            answer()
        }
        Some(Fault::Hang) => pending().await,
        Some(Fault::Cut) => return Err(Cut),
        Some(Fault::CutAfter) => {
            answer();
            return Err(Cut);
        }
        Some(Fault::Garbage) => Answer { body: r#"{"Cisco-IOS-XE-app-hosting-oper:app"#.into(), ..answer() },
        Some(Fault::Replace { pointer, value }) => replaced(answer(), &pointer, value),
    };
    sleep(answer.after).await;
    Ok(response(answer))
}

fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// The answer with another value at one place.
fn replaced(answer: Answer, pointer: &str, value: Value) -> Answer {
    let mut body: Value = serde_json::from_str(&answer.body).unwrap_or_default();
    match body.pointer_mut(pointer) {
        Some(place) => *place = value,
        None => return answer,
    }
    Answer { body: body.to_string(), ..answer }
}

fn response(answer: Answer) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(answer.body));
    *response.status_mut() = StatusCode::from_u16(answer.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    if let Some(kind) = answer.content_type {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    }
    if let Some(location) = answer.location.and_then(|path| HeaderValue::try_from(path).ok()) {
        headers.insert(LOCATION, location);
    }
    if answer.code == 401 {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(r#"Basic realm="restconf""#));
    }
    response
}
