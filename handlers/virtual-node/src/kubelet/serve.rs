//! Serves TLS connections of the kubelet APIs, with limits for their number, size and duration.

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use staffetta_driver::{ConnectionLimits, serve_connections};
use tokio::net::{TcpListener, TcpStream};
use tracing::debug;

use super::authorization::{ClientCredential, certified};
use super::tls::KubeletCertificates;

/// The limits on the connections of one node. The requests of an API server and of metrics collectors take less than the grace time.
pub(super) const CONNECTION_LIMITS: ConnectionLimits = ConnectionLimits {
    total: 64,
    per_address: 16,
    grace: Duration::from_secs(2),
    lifetime: Duration::from_secs(MAX_LIFETIME.as_secs() + HEAD_TIMEOUT.as_secs()),
    interval: Duration::ZERO,
};

/// The time limit of a TLS handshake, and then of reading the head of each request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum size of a request head, in bytes.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// The maximum lifetime of a connection, after which it is closed gracefully.
const MAX_LIFETIME: Duration = Duration::from_secs(300);

/// The user of the client's certificate; `None` if the client presented no certificate that the configured CA signed.
#[derive(Clone)]
pub(super) struct CertifiedClient(pub(super) Option<ClientCredential>);

/// The IP address of the client.
#[derive(Clone, Copy)]
pub(super) struct ClientAddress(pub(super) IpAddr);

/// Accepts connections on `listener` and serves them with `router`, until the returned future is dropped, which also
/// closes open connections.
pub(super) async fn serve(
    listener: TcpListener,
    certificates: &Arc<KubeletCertificates>,
    router: &Router,
) -> Infallible {
    let connection = |stream, peer| {
        let router = router.clone().layer(Extension(ClientAddress(peer)));
        connection(stream, Arc::clone(certificates), router)
    };
    serve_connections(listener, CONNECTION_LIMITS, "kubelet API", connection).await
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
