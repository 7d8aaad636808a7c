//! Serves TLS connections of the kubelet APIs, with limits for their number, size and duration.

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

use super::authorization::{ClientCredential, certified};
use super::tls::KubeletCertificates;

/// The maximum number of concurrent connections per node. Further connections are accepted when one ends.
const CONNECTIONS: usize = 16;

/// The time limit of a TLS handshake, and then of reading the head of each request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum size of a request head, in bytes.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// The maximum lifetime of a connection, after which it is closed gracefully.
const MAX_LIFETIME: Duration = Duration::from_secs(300);

/// The delay after a failed `accept`.
const ACCEPT_RETRY: Duration = Duration::from_millis(200);

/// The user of the client's certificate; `None` if the client presented no certificate that the configured CA signed.
#[derive(Clone)]
pub(super) struct CertifiedClient(pub(super) Option<ClientCredential>);

/// Accepts connections on `listener` and serves them with `router`, until the returned future is dropped, which also
/// closes open connections.
pub(super) async fn serve(listener: TcpListener, certificates: &Arc<KubeletCertificates>, router: &Router) {
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
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

/// Serves one connection: the TLS handshake, then requests until [`MAX_LIFETIME`] has passed. The handshake and the head of each request
/// must arrive within [`HEAD_TIMEOUT`].
async fn connection(stream: TcpStream, certificates: Arc<KubeletCertificates>, router: Router) {
    let handshake = async { certificates.acceptor().await.accept(stream).await };
    let Ok(Ok(stream)) = tokio::time::timeout(HEAD_TIMEOUT, handshake).await else {
        debug!("a connection to a kubelet API ended in its handshake");
        return;
    };
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let client = CertifiedClient(chain.first().and_then(certified));
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_header_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router.layer(Extension(client))));
    let mut serving = pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = tokio::time::sleep(MAX_LIFETIME) => {
            serving.as_mut().graceful_shutdown();
            tokio::time::timeout(HEAD_TIMEOUT, serving).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        debug!(%error, "a connection to a kubelet API ended early");
    }
}
