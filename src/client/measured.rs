//! Counts the requests to the API server by what came of them, and measures how long that took.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use tokio::time::Instant;
use tower::Service;

use crate::metrics::Requests;

/// Tells [`Requests`] of each request once its answer begins, or when there will be none.
pub(super) struct Measured<S> {
    inner: S,
    requests: Arc<Requests>,
}

impl<S> Measured<S> {
    pub(super) fn new(inner: S, requests: Arc<Requests>) -> Self {
        Self { inner, requests }
    }
}

impl<S, B> Service<Request<Body>> for Measured<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let mut pending = Pending {
            requests: Arc::clone(&self.requests),
            method: request.method().clone(),
            started: Instant::now(),
            answer: None,
        };
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            if let Ok(answer) = &answer {
                pending.answered(answer.status());
            }
            answer
        })
    }
}

/// A request under way. Who stops to wait for its answer has none, as with an error of the connection.
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
