//! The HTTPS server of the webhook, with limits on connections, requests and time.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use staffetta_driver::{ConnectionLimits, serve_connections};
use staffetta_prefix_ip::admission::PodAdmission;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tracing::debug;

use super::review::{ReviewAnswer, answer};
use crate::base::connections;
use crate::base::metrics::WebhookMetrics;

/// The path of the webhook in its URL, the same as in Amazon's VPC resource controller.
const PATH: &str = "/mutate-v1-pod";
/// The limits on connections. A connection carries one request, which takes milliseconds, so one that is two seconds old may be closed
/// to make room for a new one. An API server waits for 5 s (`timeoutSeconds`).
const CONNECTION_LIMITS: ConnectionLimits = ConnectionLimits {
    total: 128,
    per_address: 64,
    grace: Duration::from_secs(2),
    lifetime: Duration::from_secs(10),
    interval: Duration::ZERO,
};
/// The maximum size of a request body, in bytes. An API server accepts objects of up to about 1.5 MiB.
const MAX_BODY: usize = 2 << 20;

/// The state that all admission requests share.
pub(super) struct ReviewState {
    /// The rule that decides which pods get a patch.
    pub(super) admission: PodAdmission,
    /// `true` while the option `enable-windows-ipam` in the ConfigMap `amazon-vpc-cni` is `true`. Otherwise no pod is changed.
    pub(super) enabled: AtomicBool,
    /// The metrics of the webhook.
    pub(super) metrics: Arc<WebhookMetrics>,
}

/// Serves the webhook over TLS until the future is dropped.
pub(super) async fn serve(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    state: Arc<ReviewState>,
) -> Infallible {
    let router = router(state);
    let connection = |stream, _| connection(stream, acceptor.clone(), router.clone());
    serve_connections(listener, CONNECTION_LIMITS, "webhook", connection).await
}

/// Returns the routes of the server: the webhook at [`PATH`].
fn router(state: Arc<ReviewState>) -> Router {
    Router::new().route(PATH, post(review)).layer(DefaultBodyLimit::max(MAX_BODY)).with_state(state)
}

/// Serves one request and closes the connection. A connection that is kept could end just when the API server sends the next request,
/// which would then count as a failure of the webhook.
async fn connection(stream: TcpStream, acceptor: TlsAcceptor, router: Router) {
    match acceptor.accept(stream).await {
        Ok(stream) => connections::serve_request(stream, router, "webhook").await,
        Err(error) => debug!(%error, "a connection to the webhook ended in its handshake"),
    }
}

/// Answers one `AdmissionReview` of the API server: admits the object, with a patch if it is a pod that needs an address.
async fn review(State(state): State<Arc<ReviewState>>, body: Result<Bytes, BytesRejection>) -> Response {
    let started = Instant::now();
    let enabled = state.enabled.load(Ordering::Relaxed);
    let (response, outcome) = match body {
        Ok(body) => match answer(&body, |pod| state.admission.patch(pod).filter(|_| enabled)) {
            Ok(ReviewAnswer { body, patched }) => {
                let outcome = if patched { "patched" } else { "unchanged" };
                (([(CONTENT_TYPE, "application/json")], body).into_response(), outcome)
            }
            Err(error) => ((StatusCode::BAD_REQUEST, error.to_string()).into_response(), "rejected"),
        },
        Err(rejection) => (rejection.into_response(), "rejected"),
    };
    state.metrics.ended(outcome, started.elapsed());
    response
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use serde_json::{Value, json};
    use tower::ServiceExt;

    use super::*;

    fn state(enabled: bool) -> Arc<ReviewState> {
        let admission = PodAdmission::new(("kubernetes.io/os".to_owned(), "windows".to_owned()));
        Arc::new(ReviewState { admission, enabled: enabled.into(), metrics: Arc::default() })
    }

    async fn ask(state: &Arc<ReviewState>, body: impl Into<Body>) -> (StatusCode, Value) {
        let request = Request::post(PATH).header(CONTENT_TYPE, "application/json").body(body.into()).unwrap();
        let response = router(Arc::clone(state)).oneshot(request).await.unwrap();
        let status = response.status();
        let body = to_bytes(response.into_body(), MAX_BODY).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }

    fn windows_pod() -> String {
        let spec =
            json!({ "nodeSelector": { "kubernetes.io/os": "windows" }, "containers": [{ "name": "a" }] });
        json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u", "operation": "CREATE", "kind": { "group": "", "version": "v1", "kind": "Pod" },
            "object": { "metadata": { "name": "web" }, "spec": spec },
        } })
        .to_string()
    }

    #[tokio::test]
    async fn a_pod_is_changed_only_while_the_function_is_switched_on() {
        let state = state(true);
        let (status, answer) = ask(&state, windows_pod()).await;
        assert_eq!((status, &answer["response"]["patchType"]), (StatusCode::OK, &json!("JSONPatch")));
        state.enabled.store(false, Ordering::Relaxed);
        let (_, answer) = ask(&state, windows_pod()).await;
        assert_eq!(answer["response"], json!({ "uid": "u", "allowed": true }));
        assert_eq!(state.metrics.count("patched"), 1);
        assert_eq!(state.metrics.count("unchanged"), 1);
    }

    #[tokio::test]
    async fn a_body_that_is_too_large_or_malformed_is_rejected_and_counted() {
        let state = state(true);
        assert_eq!(ask(&state, vec![b' '; MAX_BODY + 1]).await.0, StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(ask(&state, "{}").await.0, StatusCode::BAD_REQUEST);
        assert_eq!(state.metrics.count("rejected"), 2);
    }
}
