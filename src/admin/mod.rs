//! The admin server: an HTTP server with a status page at `/`, `/livez`, `/readyz`, `/metrics` and `/debug/state`.

mod health;
mod page;
mod serve;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{self, State};
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tracing::error;

use crate::state::{ControllerState, MAX_LIMIT, Query, StateSnapshot};

/// The content type of the text format of OpenMetrics 1.0.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Starts the admin server at `address`. It listens until the returned task is aborted. Returns the actual address, too: for port 0,
/// the system chooses the port.
pub(crate) async fn serve(
    address: SocketAddr,
    controller: Arc<ControllerState>,
) -> io::Result<(SocketAddr, JoinHandle<()>)> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let router = Router::new()
        .route("/", get(status_page))
        .route("/livez", get(health::livez))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(metrics))
        .route("/debug/state", get(state))
        .with_state(controller);
    Ok((address, tokio::spawn(async { match serve::serve(listener, router).await {} })))
}

/// Returns the status page.
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
    Ok(Json(controller.snapshot(&query)))
}

fn bad_request(message: &str) -> (StatusCode, String) {
    (StatusCode::BAD_REQUEST, format!("{message}\n"))
}
