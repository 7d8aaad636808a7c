//! The server that answers how the program is: `/livez` and `/readyz`.

use std::fmt::Write;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tracing::error;

use crate::health::Health;

/// Listens at `address` until the task is ended. Answers the address, whose port the system chose where 0 was asked for.
pub(crate) async fn serve(
    address: SocketAddr,
    health: Arc<Health>,
) -> io::Result<(SocketAddr, JoinHandle<()>)> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let router = Router::new().route("/livez", get(livez)).route("/readyz", get(readyz)).with_state(health);
    let task = tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, router).await {
            error!(%error, "the admin server ended");
        }
    });
    Ok((address, task))
}

async fn livez(State(health): State<Arc<Health>>) -> (StatusCode, String) {
    let stuck = health.stuck();
    if stuck.is_empty() {
        return (StatusCode::OK, "ok\n".into());
    }
    (StatusCode::INTERNAL_SERVER_ERROR, format!("ended though it never should: {}\n", stuck.join(", ")))
}

async fn readyz(State(health): State<Arc<Health>>) -> (StatusCode, String) {
    let reasons = health.reasons();
    if reasons.is_empty() {
        return (StatusCode::OK, "ok\n".into());
    }
    let mut body = String::from("not ready\n");
    for (name, reason) in reasons {
        let _ = writeln!(body, "{name}: {reason}");
    }
    (StatusCode::SERVICE_UNAVAILABLE, body)
}
