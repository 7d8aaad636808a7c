//! Serves the connections of an HTTP server within limits, so that no client can block others.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{debug, warn};

/// The delay before the next attempt to accept a connection after one failed, for example because no file descriptor was free.
const ACCEPT_DELAY: Duration = Duration::from_millis(200);

/// The time limit for receiving the head of a request.
pub(crate) const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum size of the head of a request, in bytes; a larger one is rejected with 431.
pub(crate) const MAX_HEAD_BYTES: usize = 16 * 1024;

/// The limits on the connections of one of this process's HTTP servers (admin, webhook).
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionBound {
    /// The maximum number of concurrent connections of clients.
    pub(crate) connections: usize,
    /// The age at which the oldest connection may be closed to make room for a new one. Until then, the new one waits.
    pub(crate) grace: Duration,
    /// The maximum lifetime of a connection, after which it is closed.
    pub(crate) lifetime: Duration,
}

/// The time at which an open connection was accepted, and the task that serves it.
type OpenConnection = (Instant, AbortHandle);

/// Accepts connections within the limits `bound` and serves each with `connection`, until the future is dropped, which also closes the open
/// ones. `server` names the server in the log.
pub(crate) async fn serve<F>(
    listener: TcpListener,
    bound: ConnectionBound,
    server: &'static str,
    connection: impl Fn(TcpStream) -> F,
) -> Infallible
where
    F: Future<Output = ()> + Send + 'static,
{
    // The oldest connection first.
    let mut open: VecDeque<OpenConnection> = VecDeque::new();
    let mut tasks = JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                make_room(&mut open, bound, &mut tasks).await;
                let served = timeout(bound.lifetime, connection(stream));
                let served = async move {
                    if served.await.is_err() {
                        debug!(server, "a connection timed out");
                    }
                };
                open.push_back((Instant::now(), tasks.spawn(served)));
            }
            Err(error) => {
                warn!(server, %error, "a server cannot accept a connection");
                sleep(ACCEPT_DELAY).await;
            }
        }
    }
}

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

/// Waits until there is room for another connection: one has ended, or the oldest one has reached the age `bound.grace` and is closed.
async fn make_room(open: &mut VecDeque<OpenConnection>, bound: ConnectionBound, tasks: &mut JoinSet<()>) {
    loop {
        while tasks.try_join_next().is_some() {}
        open.retain(|(_, task)| !task.is_finished());
        let Some((began, task)) = open.front().filter(|_| open.len() >= bound.connections) else { return };
        let due = *began + bound.grace;
        if due <= Instant::now() {
            task.abort();
            open.pop_front();
            return;
        }
        tokio::select! {
            _ = tasks.join_next() => {}
            () = sleep_until(due) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_util::task::AbortOnDropHandle;

    use super::*;

    const GRACE: Duration = Duration::from_secs(2);

    /// Starts a server with two connections. It answers one byte with another one, and panics at the byte `!`.
    async fn served(grace: Duration) -> (SocketAddr, AbortOnDropHandle<Infallible>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let bound = ConnectionBound { connections: 2, grace, lifetime: GRACE * 10 };
        let serving = serve(listener, bound, "echo", echo);
        (address, AbortOnDropHandle::new(tokio::spawn(serving)))
    }

    async fn echo(mut stream: TcpStream) {
        let mut byte = [0];
        if stream.read_exact(&mut byte).await.is_ok() {
            assert_ne!(byte, *b"!");
            let _ = stream.write_all(&byte).await;
        }
    }

    async fn is_answered(address: SocketAddr) -> bool {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"a").await.unwrap();
        stream.read_u8().await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn at_the_bound_another_connection_waits_until_the_oldest_one_is_old_and_is_closed() {
        let (address, _task) = served(GRACE).await;
        let mut idle = Vec::new();
        for _ in 0..2 {
            idle.push(TcpStream::connect(address).await.unwrap());
        }
        let began = Instant::now();
        assert!(is_answered(address).await);
        assert_eq!(began.elapsed().as_secs(), GRACE.as_secs());
        assert_eq!(idle[0].read(&mut [0]).await.unwrap_or(0), 0, "the oldest one is closed");
    }

    #[tokio::test(start_paused = true)]
    async fn at_the_bound_a_connection_that_ends_or_panics_makes_room_at_once() {
        for last in [b"b", b"!"] {
            let (address, _task) = served(GRACE).await;
            let mut idle = Vec::new();
            for _ in 0..2 {
                idle.push(TcpStream::connect(address).await.unwrap());
            }
            let began = Instant::now();
            let waiting = tokio::spawn(is_answered(address));
            tokio::task::yield_now().await;
            idle[1].write_all(last).await.unwrap();
            assert!(timeout(GRACE / 2, waiting).await.unwrap().unwrap());
            assert!(began.elapsed() < GRACE);
        }
    }
}
