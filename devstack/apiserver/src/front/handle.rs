//! Handles a request: its fault, its response, and its record.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::{Body, to_bytes};
use axum::extract::{ConnectInfo, Request, State};
use axum::response::Response;
use http::header::{CONTENT_LENGTH, DATE, USER_AGENT};
use http::{HeaderMap, HeaderValue};
use jiff::fmt::rfc2822::DateTimePrinter;
use jiff::{SignedDuration, Timestamp};

use super::connections::Socket;
use super::{Asked, Backend, Fault, Front, Question, RequestRecord, answer, gate, inject};
use crate::status::Status;

/// The largest body that is read to find the fault that is planned for it. A real server takes no more than 3 MiB.
const BODY_BYTES: usize = 16 * 1024 * 1024;

/// A server that injects faults into the responses of a backend.
pub(super) struct FaultyServer<B> {
    pub(super) front: Arc<Front>,
    pub(super) backend: Arc<B>,
}

/// Answers a request.
pub(super) async fn handle<B: Backend>(
    State(server): State<Arc<FaultyServer<B>>>,
    ConnectInfo(socket): ConnectInfo<Socket>,
    request: Request,
) -> Response {
    let asked = Asked::of(request.method(), request.uri());
    let answered = match &asked {
        Ok(Asked::Objects(question)) => server.about_objects(question, &asked, request).await,
        _ => server.backend.answer(&asked, request).await,
    };
    let Some(mut response) = answered else {
        return cut(&socket).await;
    };
    server.front.date(&mut response);
    response
}

/// Ends the connection; what is returned is never sent.
async fn cut(socket: &Socket) -> Response {
    if let Some(wire) = &socket.0 {
        wire.cut();
    }
    std::future::pending().await
}

impl<B: Backend> FaultyServer<B> {
    /// The answer, or None where the connection is to be cut.
    async fn about_objects(
        &self,
        question: &Question,
        asked: &Result<Asked, Status>,
        request: Request,
    ) -> Option<Response> {
        let user_agent = user_agent(request.headers());
        let record = |code| {
            self.front.audit.push(RequestRecord::new(question, user_agent.clone(), code));
        };
        let (request, fault) = self.front.take_fault(question, request).await?;
        match &fault {
            Some(Fault::Hang) => {
                record(0);
                return std::future::pending().await;
            }
            Some(Fault::Cut) => {
                record(0);
                return None;
            }
            Some(Fault::Refuse { code, retry_after }) => {
                record(*code);
                return Some(answer::refusal(&Fault::refusal(*code, *retry_after)));
            }
            Some(Fault::Busy { code, retry_after }) => {
                record(*code);
                return Some(answer::busy(*code, *retry_after));
            }
            Some(Fault::Answer { code, body }) => {
                record(*code);
                return Some(answer::chosen(*code, body));
            }
            Some(Fault::Delay(time)) => tokio::time::sleep(*time).await,
            Some(Fault::Hold) => self.front.hold.wait().await,
            _ => {}
        }
        let unanswered = matches!(fault, Some(Fault::CutAfter | Fault::HangAfter));
        let answered = self.backend.answer(asked, request).await.filter(|_| !unanswered);
        record(answered.as_ref().map_or(0, |response| response.status().as_u16()));
        if fault == Some(Fault::HangAfter) {
            return std::future::pending().await;
        }
        let response = answered?;
        if question.verb == "watch" && response.status().is_success() {
            return Some(response.map(|body| gate::gated(&self.front, inject::watch(body, fault))));
        }
        match fault {
            Some(fault @ (Fault::CutMid | Fault::Garbage | Fault::Replace { .. })) => {
                injected(response, &fault).await
            }
            _ => Some(response),
        }
    }
}

async fn injected(response: Response, fault: &Fault) -> Option<Response> {
    let (mut parts, body) = response.into_parts();
    parts.headers.remove(CONTENT_LENGTH);
    Some(Response::from_parts(parts, inject::answer(body, fault).await?))
}

impl Front {
    /// Returns the request with the fault that is planned for it; None where the request does not come to its end.
    async fn take_fault(&self, question: &Question, request: Request) -> Option<(Request, Option<Fault>)> {
        if !self.plan.reads_body(question) {
            return Some((request, self.plan.take_fault(question, b"")));
        }
        let (parts, body) = request.into_parts();
        let body = to_bytes(body, BODY_BYTES).await.ok()?;
        let fault = self.plan.take_fault(question, &body);
        Some((Request::from_parts(parts, Body::from(body)), fault))
    }

    /// Gives the answer a wrong date, where the test wants one.
    fn date(&self, response: &mut Response<Body>) {
        let skew = self.skew.load(Ordering::Relaxed);
        if skew == 0 {
            return;
        }
        let now = Timestamp::now().saturating_add(SignedDuration::from_secs(skew));
        let date = now.ok().and_then(|now| DateTimePrinter::new().timestamp_to_rfc9110_string(&now).ok());
        if let Some(date) = date.and_then(|date| HeaderValue::try_from(date).ok()) {
            response.headers_mut().insert(DATE, date);
        }
    }
}

fn user_agent(headers: &HeaderMap) -> String {
    headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default().into()
}
