//! Serves connections within limits, so that no client can block the admin server.

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use staffetta_driver::{ConnectionLimits, serve_connections};
use tokio::net::TcpListener;

use crate::base::connections::serve_request;

/// The limits on connections. The grace time is long enough to serve the page, and shorter than the time limit of a probe. A probe comes
/// from the address of the node, so clients at other addresses do not delay it, whatever they do.
const CONNECTION_LIMITS: ConnectionLimits = ConnectionLimits {
    total: 64,
    per_address: 16,
    grace: Duration::from_millis(500),
    lifetime: Duration::from_secs(15),
    interval: Duration::ZERO,
};

/// Serves connections until the future is dropped. Dropping it also closes the open connections.
pub(super) async fn serve(listener: TcpListener, router: Router) -> Infallible {
    let connection = |stream, _| serve_request(stream, router.clone(), "admin");
    serve_connections(listener, CONNECTION_LIMITS, "admin", connection).await
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpSocket, TcpStream};
    use tokio::time::Instant;

    use super::*;
    use crate::base::connections::{HEAD_TIMEOUT, MAX_HEAD_BYTES};

    async fn served() -> (std::net::SocketAddr, tokio::task::JoinHandle<Infallible>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        // Larger than the buffers of a connection.
        let large = || async { vec![0_u8; 32 * 1024 * 1024] };
        let page = || async { "p".repeat(PAGE_BYTES) };
        let router = Router::new()
            .route("/", get(async || "here"))
            .route("/page", get(page))
            .route("/large", get(large));
        (address, tokio::spawn(serve(listener, router)))
    }

    /// Returns the response to `request`, read until the server closes the connection.
    async fn answer(address: std::net::SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request).await.unwrap();
        let mut answer = Vec::new();
        // The connection may be reset after the response.
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_finish_its_request_head_is_disconnected() {
        let (address, _task) = served().await;
        let started = Instant::now();
        assert_eq!(answer(address, b"GET / HTTP/1.1\r\nHost: here\r\n").await, "");
        assert_eq!(started.elapsed().as_secs(), HEAD_TIMEOUT.as_secs());
    }

    #[tokio::test]
    async fn a_request_head_that_is_too_large_is_rejected() {
        let (address, _task) = served().await;
        let request = format!("GET / HTTP/1.1\r\nHost: here\r\nX: {}\r\n\r\n", "x".repeat(MAX_HEAD_BYTES));
        let answer = answer(address, request.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connections_do_not_block_others() {
        let (address, _task) = served().await;
        let mut idle = Vec::new();
        for _ in 0..CONNECTION_LIMITS.total {
            idle.push(TcpStream::connect(address).await.unwrap());
        }
        is_served_within(HEAD_TIMEOUT / 2, address).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_idle_connections_from_one_address_delays_no_probe_from_another_one() {
        /// The time limit of a probe of a kubelet.
        const PROBE: Duration = Duration::from_secs(1);
        let (address, _task) = served().await;
        let mut flood = Vec::new();
        for _ in 0..6 {
            for _ in 0..100 {
                flood.push(TcpStream::connect(address).await.unwrap());
            }
            let probe = async {
                let socket = TcpSocket::new_v4().unwrap();
                socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
                let mut stream = socket.connect(address).await.unwrap();
                stream.write_all(REQUEST).await.unwrap();
                let mut answer = String::new();
                stream.read_to_string(&mut answer).await.map(|_| answer)
            };
            let answer = tokio::time::timeout(PROBE, probe).await.expect("the probe is answered in time");
            assert!(answer.unwrap().ends_with("\r\n\r\nhere"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_sends_many_requests_does_not_block_others() {
        let (address, _task) = served().await;
        let mut busy = tokio::task::JoinSet::new();
        for _ in 0..CONNECTION_LIMITS.total {
            let mut stream = TcpStream::connect(address).await.unwrap();
            busy.spawn(async move {
                let mut answer = [0; 1024];
                while stream.write_all(REQUEST).await.is_ok()
                    && stream.read(&mut answer).await.is_ok_and(|read| read > 0)
                {
                    tokio::time::sleep(HEAD_TIMEOUT / 2).await;
                }
            });
        }
        is_served_within(HEAD_TIMEOUT, address).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_its_response_does_not_block_others() {
        let (address, _task) = served().await;
        let mut not_reading = Vec::new();
        for _ in 0..CONNECTION_LIMITS.total {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(b"GET /large HTTP/1.1\r\nHost: here\r\n\r\n").await.unwrap();
            not_reading.push(stream);
        }
        is_served_within(CONNECTION_LIMITS.lifetime / 2, address).await;
    }

    /// The size of a status page with many objects that fail.
    const PAGE_BYTES: usize = 90_000;

    #[tokio::test]
    async fn a_hundred_browsers_and_probes_at_the_same_time_are_all_served() {
        const PAGE_REQUEST: &[u8] = b"GET /page HTTP/1.1\r\nHost: here\r\n\r\n";
        let (address, _task) = served().await;
        let (mut browsers, mut probes) = (tokio::task::JoinSet::new(), tokio::task::JoinSet::new());
        for browser in 0..100 {
            browsers.spawn(answer(address, PAGE_REQUEST));
            if browser % 10 == 0 {
                probes.spawn(answer(address, REQUEST));
            }
        }
        for probe in probes.join_all().await {
            assert!(probe.ends_with("\r\n\r\nhere"), "{probe}");
        }
        for page in browsers.join_all().await {
            assert!(page.ends_with(&"p".repeat(PAGE_BYTES)), "{} bytes", page.len());
        }
    }

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n";

    async fn is_served_within(time: Duration, address: std::net::SocketAddr) {
        let answer = tokio::time::timeout(time, answer(address, REQUEST)).await;
        assert!(answer.expect("the request is served in time").ends_with("\r\n\r\nhere"));
    }
}
