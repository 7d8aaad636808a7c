//! Serves the requests of this process's HTTP servers (admin, webhook) within limits.

use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tracing::debug;

/// The time limit for receiving the head of a request.
pub(crate) const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum size of the head of a request, in bytes; a larger one is rejected with 431.
pub(crate) const MAX_HEAD_BYTES: usize = 16 * 1024;

/// Serves one request and closes the connection, so that other clients get a connection, too. `server` names the server in the log.
pub(crate) async fn serve_request(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    router: Router,
    server: &'static str,
) {
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .keep_alive(false)
        .header_read_timeout(HEAD_TIMEOUT)
        .max_header_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    if let Err(error) = served.await {
        debug!(server, %error, "a connection ended early");
    }
}
