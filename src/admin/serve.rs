//! Serves connections within bounds, so that whoever can reach the server cannot hold it up.

use std::convert::Infallible;
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

/// How long the head of a request may take to arrive.
const HEAD: Duration = Duration::from_secs(10);

/// How large the head of a request may be, in bytes; it is refused with 431.
const HEAD_BYTES: usize = 16 * 1024;

/// After how long a connection is closed, whatever becomes of its answer.
const LIFE: Duration = Duration::from_secs(15);

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

/// One request and its answer: who asks again comes again, and waits for its turn like others.
async fn connection(stream: TcpStream, router: Router) {
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .keep_alive(false)
        .header_read_timeout(HEAD)
        .max_header_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    match tokio::time::timeout(LIFE, serving).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!(%error, "a connection to the admin server ended early"),
        Err(_) => debug!("an answer of the admin server was not taken in time"),
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::Instant;

    use super::*;

    async fn served() -> (std::net::SocketAddr, tokio::task::JoinHandle<Infallible>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        // More than the buffers of a connection take.
        let large = || async { vec![0_u8; 32 * 1024 * 1024] };
        let router = Router::new().route("/", get(async || "here")).route("/large", get(large));
        (address, tokio::spawn(serve(listener, router)))
    }

    /// What is answered to `request` until the server closes the connection.
    async fn answer(address: std::net::SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request).await.unwrap();
        let mut answer = Vec::new();
        // A connection that is reset after the answer has been answered all the same.
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_end_the_head_of_a_request_is_cut_off() {
        let (address, _task) = served().await;
        let started = Instant::now();
        assert_eq!(answer(address, b"GET / HTTP/1.1\r\nHost: here\r\n").await, "");
        assert_eq!(started.elapsed().as_secs(), HEAD.as_secs());
    }

    #[tokio::test]
    async fn a_head_that_is_too_large_is_refused() {
        let (address, _task) = served().await;
        let request = format!("GET / HTTP/1.1\r\nHost: here\r\nX: {}\r\n\r\n", "x".repeat(HEAD_BYTES));
        let answer = answer(address, request.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connections_make_room_for_others() {
        let (address, _task) = served().await;
        let mut idle = Vec::new();
        for _ in 0..CONNECTIONS {
            idle.push(TcpStream::connect(address).await.unwrap());
        }
        gets_its_turn_within(2 * HEAD, address).await;
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_all_the_time_makes_room_for_others() {
        let (address, _task) = served().await;
        let mut busy = tokio::task::JoinSet::new();
        for _ in 0..CONNECTIONS {
            let mut stream = TcpStream::connect(address).await.unwrap();
            busy.spawn(async move {
                let mut answer = [0; 1024];
                while stream.write_all(REQUEST).await.is_ok()
                    && stream.read(&mut answer).await.is_ok_and(|read| read > 0)
                {
                    tokio::time::sleep(HEAD / 2).await;
                }
            });
        }
        gets_its_turn_within(HEAD, address).await;
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_read_its_answer_makes_room_for_others() {
        let (address, _task) = served().await;
        let mut deaf = Vec::new();
        for _ in 0..CONNECTIONS {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(b"GET /large HTTP/1.1\r\nHost: here\r\n\r\n").await.unwrap();
            deaf.push(stream);
        }
        gets_its_turn_within(2 * LIFE, address).await;
    }

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n";

    async fn gets_its_turn_within(time: Duration, address: std::net::SocketAddr) {
        let answer = tokio::time::timeout(time, answer(address, REQUEST)).await;
        assert!(answer.expect("it gets its turn").ends_with("\r\n\r\nhere"));
    }
}
