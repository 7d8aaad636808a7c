//! Counts the requests to the API server by what came of them, measures how long that took, hears when it last spoke, and paces
//! watches that end as soon as they begin.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Method, Request, Response, StatusCode};
use http_body::{Frame, SizeHint};
use kube::client::Body;
use tokio::time::Instant;
use tower::{BoxError, Service};

use super::silence::{Ear, Silence};
use crate::metrics::Requests;

/// Tells [`Requests`] of each request that has ended, and [`Silence`] of all that is heard. A watch that begins too soon after the
/// last one of its kind is not asked for.
pub(super) struct Measured<S> {
    inner: S,
    requests: Arc<Requests>,
    silence: Arc<Silence>,
}

impl<S> Measured<S> {
    pub(super) fn new(inner: S, requests: &Arc<Requests>, silence: &Arc<Silence>) -> Self {
        Self { inner, requests: Arc::clone(requests), silence: Arc::clone(silence) }
    }
}

impl<S, B> Service<Request<Body>> for Measured<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    type Response = Response<MeasuredBody<B>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let query = request.uri().query().unwrap_or_default();
        let watches = query.split('&').any(|part| part == WATCH);
        let ear = if watches { self.silence.ear(request.uri().path()) } else { None };
        if let Some(Err(error)) = ear.as_ref().map(|ear| ear.begins()) {
            return Box::pin(async { Err(error.into()) });
        }
        if let Some((ear, version)) = ear.as_ref().zip(version(query)) {
            ear.goes_on_from(version);
        }
        let mut pending = Pending {
            requests: Arc::clone(&self.requests),
            method: request.method().clone(),
            started: Instant::now(),
            answer: None,
        };
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await.map_err(Into::into)?;
            pending.answered(answer.status());
            // A refusal is no word from what is watched.
            let ear = ear.filter(|_| answer.status().is_success());
            hear(ear.as_deref());
            let pending = (!watches).then_some(pending);
            Ok(answer.map(|body| MeasuredBody { body, pending, ear }))
        })
    }
}

fn hear(ear: Option<&Ear>) {
    if let Some(ear) = ear {
        ear.hear();
    }
}

/// What makes a request a watch, as the client library writes it.
const WATCH: &str = "watch=true";

/// From where in the history a watch is asked for.
fn version(query: &str) -> Option<u64> {
    query.split('&').find_map(|part| part.strip_prefix("resourceVersion="))?.parse().ok()
}

/// A request under way; it has ended when this is dropped. Who stops to wait for the answer has none, as with an error of
/// the connection.
struct Pending {
    requests: Arc<Requests>,
    method: Method,
    started: Instant,
    answer: Option<StatusCode>,
}

impl Pending {
    fn answered(&mut self, code: StatusCode) {
        self.answer = Some(code);
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.requests.ended(&self.method, self.answer, self.started.elapsed());
    }
}

/// An answer on its way: the request ends when it has been read or is let go. That of a watch has ended before.
pub(super) struct MeasuredBody<B> {
    body: B,
    pending: Option<Pending>,
    ear: Option<Arc<Ear>>,
}

impl<B: http_body::Body + Unpin> http_body::Body for MeasuredBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        match &frame {
            Poll::Ready(Some(Ok(_))) => hear(self.ear.as_deref()),
            Poll::Ready(_) => self.pending = None,
            Poll::Pending => {}
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
