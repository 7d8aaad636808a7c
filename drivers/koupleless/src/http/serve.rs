//! Serves the connections of bases within limits, so that no base can keep others from reporting.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::IpAddr;
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, warn};

/// The maximum number of concurrent connections of all bases. A further connection closes the oldest one.
const CONNECTIONS: usize = 512;

/// The maximum number of concurrent connections from one address. A further connection closes the oldest one from there.
const CONNECTIONS_PER_ADDRESS: usize = 8;

/// The time limit for receiving the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum size of the head of a request, in bytes.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// The maximum lifetime of a connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(15);

/// The delay after a failure to accept a connection, for example because no file descriptor is free.
const ACCEPT_DELAY: Duration = Duration::from_millis(200);

/// The address from which a request comes.
#[derive(Clone, Copy)]
pub(super) struct Peer(pub(super) IpAddr);

/// Serves connections until the future is dropped, which also closes the open connections.
pub(super) async fn serve(listener: TcpListener, router: Router) -> Infallible {
    // The oldest connection first.
    let mut connections: VecDeque<(IpAddr, AbortOnDropHandle<()>)> = VecDeque::new();
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let peer = peer.ip().to_canonical();
                connections.retain(|(_, connection)| !connection.is_finished());
                if connections.iter().filter(|(of, _)| *of == peer).count() >= CONNECTIONS_PER_ADDRESS
                    && let Some(oldest) = connections.iter().position(|(of, _)| *of == peer)
                {
                    connections.remove(oldest);
                } else if connections.len() >= CONNECTIONS {
                    connections.pop_front();
                }
                let router = router.clone().layer(Extension(Peer(peer)));
                connections
                    .push_back((peer, AbortOnDropHandle::new(tokio::spawn(connection(stream, router)))));
            }
            Err(error) => {
                warn!(%error, "cannot accept a connection of a base");
                tokio::time::sleep(ACCEPT_DELAY).await;
            }
        }
    }
}

/// Serves one request and closes the connection, so that idle connections of bases take no place.
async fn connection(stream: TcpStream, router: Router) {
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .keep_alive(false)
        .header_read_timeout(HEAD_TIMEOUT)
        .max_header_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    match tokio::time::timeout(CONNECTION_TIMEOUT, serving).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!(%error, "a connection of a base ended early"),
        Err(_) => debug!("a connection of a base timed out"),
    }
}
