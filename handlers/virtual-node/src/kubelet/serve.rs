//! Serves TLS connections within bounds.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tracing::{debug, warn};

use super::tls::Certificates;

/// How many connections of one node are served at a time; others wait to be accepted.
const CONNECTIONS: usize = 16;

/// How long a handshake, and then the head of a request, may take.
const HEAD: Duration = Duration::from_secs(10);

/// How large the head of a request may be, in bytes.
const HEAD_BYTES: usize = 16 * 1024;

/// After how long a connection is closed.
const LIFE: Duration = Duration::from_secs(300);

/// How long nothing is accepted after the system refused to.
const PAUSE: Duration = Duration::from_millis(200);

/// Whether the other side showed a certificate that the configured authority signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known(pub(super) bool);

/// Serves until it is dropped; connections under way end then too.
pub(super) async fn serve(listener: TcpListener, certificates: &Arc<Certificates>, router: &Router) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = tokio::task::JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let place = Arc::clone(&room).acquire_owned().await.expect("nobody closes it");
        match listener.accept().await {
            Ok((stream, _)) => {
                let connection = connection(stream, Arc::clone(certificates), router.clone());
                connections.spawn(async move {
                    connection.await;
                    drop(place);
                });
            }
            Err(error) => {
                warn!(%error, "a kubelet API cannot accept a connection");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, certificates: Arc<Certificates>, router: Router) {
    let handshake = async { certificates.acceptor().await.accept(stream).await };
    let Ok(Ok(stream)) = tokio::time::timeout(HEAD, handshake).await else {
        debug!("a connection to a kubelet API ended in its handshake");
        return;
    };
    let known = Known(stream.get_ref().1.peer_certificates().is_some_and(|shown| !shown.is_empty()));
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_header_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router.layer(Extension(known))));
    let mut serving = pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = tokio::time::sleep(LIFE) => {
            serving.as_mut().graceful_shutdown();
            tokio::time::timeout(HEAD, serving).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        debug!(%error, "a connection to a kubelet API ended early");
    }
}
