//! Serves the connections of bases within limits, so that no base can keep others from reporting.

use std::convert::Infallible;
use std::net::IpAddr;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use staffetta_driver::{ConnectionLimits, serve_connections};
use tokio::net::{TcpListener, TcpStream};
use tracing::debug;

/// The limits on connections. One address may be that of a proxy in front of many bases. To wake up for a heartbeat alone takes more CPU
/// time than to process it, so those of a tenth of a second are accepted together.
const CONNECTION_LIMITS: ConnectionLimits = ConnectionLimits {
    total: 256,
    per_address: 32,
    grace: Duration::from_secs(1),
    lifetime: Duration::from_secs(15),
    interval: Duration::from_millis(100),
};

/// The maximum size of the head of a request, in bytes.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// Serves connections until the future is dropped, which also closes the open connections. `respond` returns the response to a request
/// from an address.
pub(super) async fn serve<F: Future<Output = Response<String>> + Send + 'static>(
    listener: TcpListener,
    respond: impl Fn(IpAddr, Request<Incoming>) -> F + Clone + Send + 'static,
) -> Infallible {
    let connection = |stream, peer| serve_one(stream, peer, respond.clone());
    serve_connections(listener, CONNECTION_LIMITS, "bases", connection).await
}

/// Serves one request and closes the connection, so that idle connections of bases take no place.
async fn serve_one<F: Future<Output = Response<String>>>(
    stream: TcpStream,
    peer: IpAddr,
    respond: impl Fn(IpAddr, Request<Incoming>) -> F,
) {
    let service = service_fn(move |request| {
        let responding = respond(peer, request);
        async move { Ok::<_, Infallible>(responding.await) }
    });
    // The time limit of the connection is that of the head, too.
    let serving = http1::Builder::new()
        .keep_alive(false)
        .max_header_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = serving.await {
        debug!(%error, "a connection of a base ended early");
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpSocket;
    use tokio::time::Instant;
    use tokio_util::task::AbortOnDropHandle;

    use super::*;

    async fn name_peer(peer: IpAddr, _: Request<Incoming>) -> Response<String> {
        Response::new(peer.to_string())
    }

    async fn connect(from: &str, to: SocketAddr) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(from.parse().unwrap()).unwrap();
        socket.connect(to).await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connections_of_one_base_close_their_oldest_and_never_those_of_another() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let _serving = AbortOnDropHandle::new(tokio::spawn(serve(listener, name_peer)));
        let started = Instant::now();
        let mut other = connect("127.0.0.2:0", address).await;
        let mut idle = Vec::new();
        for _ in 0..CONNECTION_LIMITS.per_address * 2 {
            idle.push(connect("127.0.0.1:0", address).await);
        }
        let _ = idle[0].read(&mut [0]).await;
        other.write_all(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        other.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("127.0.0.2"), "{answer}");
        assert!(
            started.elapsed() < CONNECTION_LIMITS.lifetime / 2,
            "the oldest one was closed by its time limit only"
        );
    }

    #[tokio::test]
    async fn reports_that_arrive_together_from_one_address_are_all_answered() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut reports = Vec::new();
        for _ in 0..CONNECTION_LIMITS.per_address * 3 {
            let mut report = connect("127.0.0.1:0", address).await;
            report.write_all(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n").await.unwrap();
            reports.push(report);
        }
        let _serving = AbortOnDropHandle::new(tokio::spawn(serve(listener, name_peer)));
        for mut report in reports {
            let mut answer = String::new();
            report.read_to_string(&mut answer).await.unwrap();
            assert!(answer.ends_with("127.0.0.1"), "{answer}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_head_that_is_not_finished_or_too_large_ends_its_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let _serving = AbortOnDropHandle::new(tokio::spawn(serve(listener, name_peer)));
        let mut slow = connect("127.0.0.1:0", address).await;
        slow.write_all(b"POST /heartbeat HTTP/1.1\r\nHost: here\r\n").await.unwrap();
        let mut large = connect("127.0.0.1:0", address).await;
        let head = format!("POST / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(MAX_HEAD_BYTES));
        large.write_all(head.as_bytes()).await.unwrap();
        let (mut nothing, mut answer) = (Vec::new(), Vec::new());
        // The connection may be reset after the response.
        let _ = large.read_to_end(&mut answer).await;
        assert!(answer.starts_with(b"HTTP/1.1 431 "));
        let started = Instant::now();
        assert_eq!(slow.read_to_end(&mut nothing).await.unwrap(), 0);
        assert!(started.elapsed() < CONNECTION_LIMITS.lifetime * 2);
    }
}
