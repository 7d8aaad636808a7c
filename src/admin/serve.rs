//! Serves connections within bounds, so that whoever can reach the server cannot hold it up.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tracing::{debug, warn};

/// How many connections are served at a time; others wait to be accepted.
const CONNECTIONS: usize = 64;

/// How long the head of a request may take to arrive, and how long a connection may be idle.
const HEAD: Duration = Duration::from_secs(10);

/// How large the head of a request may be, in bytes; it is refused with 431.
const HEAD_BYTES: usize = 16 * 1024;

/// After how long a connection is closed, as soon as the answer under way is out.
const LIFE: Duration = Duration::from_secs(300);

/// How long that answer may take then.
const LAST_ANSWER: Duration = Duration::from_secs(10);

/// How long nothing is accepted after the system refused to (no file descriptor is left).
const PAUSE: Duration = Duration::from_millis(200);

/// Serves until it is dropped; connections under way end then too.
pub(super) async fn serve(listener: TcpListener, router: Router) -> Infallible {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = tokio::task::JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let place = Arc::clone(&room).acquire_owned().await.expect("nobody closes it");
        match listener.accept().await {
            Ok((stream, _)) => {
                let connection = connection(stream, router.clone());
                connections.spawn(async move {
                    connection.await;
                    drop(place);
                });
            }
            Err(error) => {
                warn!(%error, "the admin server cannot accept a connection");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, router: Router) {
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_header_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut serving = pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = tokio::time::sleep(LIFE) => {
            serving.as_mut().graceful_shutdown();
            tokio::time::timeout(LAST_ANSWER, serving).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        debug!(%error, "a connection to the admin server ended early");
    }
}
