//! The admin server: an HTTP server with a status page at `/`, `/livez`, `/readyz`, `/metrics`, `/debug/state`, `/debug/log-level` and
//! `/debug/check`; and the probes server, which has only what the kubelet and Prometheus need.

#[cfg(test)]
mod browser_tests;
mod check;
mod health;
mod log_level;
mod page;
mod picture;
mod serve;
#[cfg(test)]
mod testing;
mod text;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{self, DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;
use tracing::error;

use crate::base::config::AdminOptions;
use crate::observe::state::{ControllerState, MAX_LIMIT, Query, StateSnapshot};

/// The content type of the text format of OpenMetrics 1.0.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The maximum size of the body of a request, in bytes.
const MAX_BODY_BYTES: usize = 4 * 1024;

/// A running admin or probes server, which listens until it is dropped.
pub(crate) struct Server {
    /// The actual address: for port 0, the system chooses the port.
    pub(crate) address: SocketAddr,
    _task: AbortOnDropHandle<()>,
}

/// The reason why a server cannot listen.
#[derive(Debug, thiserror::Error)]
#[error("the admin server cannot listen at {address} (`{option}`)")]
pub struct ListenError {
    address: SocketAddr,
    option: &'static str,
    source: io::Error,
}

/// Starts the admin server and, if it is configured, the probes server. Fails if one of them cannot listen at its address.
pub(crate) async fn serve(
    options: &AdminOptions,
    controller: &Arc<ControllerState>,
) -> Result<(Server, Option<Server>), ListenError> {
    let loopback = options.listen.ip().is_loopback();
    let admin = probe_routes()
        .route("/", get(status_page))
        .route("/debug/state", get(state))
        .merge(log_level::routes(loopback))
        .merge(check::routes(loopback))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES));
    let admin = listen(options.listen, "admin.listen", admin.with_state(Arc::clone(controller))).await?;
    let probes = match options.probes_listen {
        Some(address) => {
            let router = probe_routes().with_state(Arc::clone(controller));
            Some(listen(address, "admin.probes_listen", router).await?)
        }
        None => None,
    };
    Ok((admin, probes))
}

/// Returns the routes that the kubelet and Prometheus need: `/livez`, `/readyz` and `/metrics`.
fn probe_routes() -> Router<Arc<ControllerState>> {
    Router::new()
        .route("/livez", get(health::livez))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(metrics))
}

/// Starts a server of `router` at `address`. `option` is the name of the option that contains the address, for the error.
async fn listen(address: SocketAddr, option: &'static str, router: Router) -> Result<Server, ListenError> {
    let failed = |source| ListenError { address, option, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let task = tokio::spawn(async { match serve::serve(listener, router).await {} });
    Ok(Server { address, _task: AbortOnDropHandle::new(task) })
}

/// Returns the status page as HTML, with the objects that fail or are stuck.
async fn status_page(State(controller): State<Arc<ControllerState>>) -> impl IntoResponse {
    let query = Query { limit: Some(page::MAX_OBJECTS), ..Query::default() };
    let mut snapshot = controller.snapshot(&query);
    snapshot.retain_failing_and_stuck();
    let headers = [(CONTENT_SECURITY_POLICY, page::POLICY), (CACHE_CONTROL, "no-store")];
    (headers, Html(page::page(&snapshot)))
}

/// Returns all metrics in the OpenMetrics text format.
async fn metrics(State(controller): State<Arc<ControllerState>>) -> Response {
    match controller.metrics_page() {
        Ok(page) => ([(CONTENT_TYPE, OPEN_METRICS)], page).into_response(),
        Err(error) => {
            error!(%error, "cannot encode the metrics");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// Returns the state of the controller, and the objects that the query selects. Responds with 400 if the query is invalid or names a
/// handler that is not enabled.
async fn state(
    State(controller): State<Arc<ControllerState>>,
    query: Result<extract::Query<Query>, QueryRejection>,
) -> Result<Json<StateSnapshot>, (StatusCode, String)> {
    let extract::Query(query) = query.map_err(|rejection| bad_request(&rejection.body_text()))?;
    if query.limit() > MAX_LIMIT {
        return Err(bad_request(&format!("`limit` is at most {MAX_LIMIT}")));
    }
    let handlers = controller.handlers();
    if let Some(handler) =
        query.handler.as_deref().filter(|handler| handlers.iter().all(|enabled| enabled != handler))
    {
        let known = handlers.join("`, `");
        return Err(bad_request(&format!("the handler `{handler}` is not enabled; those are: `{known}`")));
    }
    let mut snapshot = controller.snapshot(&query);
    if query.explain {
        controller.explain(&query, &mut snapshot).await;
    }
    Ok(Json(snapshot))
}

fn bad_request(message: &str) -> (StatusCode, String) {
    (StatusCode::BAD_REQUEST, format!("{message}\n"))
}
