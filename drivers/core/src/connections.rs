//! Accepts the connections of a server within limits, so that no client keeps others out.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::net::IpAddr;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{debug, warn};

/// The delay before the next attempt to accept a connection after one failed, for example because no file descriptor was free.
const ACCEPT_DELAY: Duration = Duration::from_millis(200);

/// The maximum number of accepted connections that wait to be served. Beyond it, the newest one of the address that has most of them is
/// closed.
const MAX_WAITING: usize = 256;

/// The limits on the connections of one server.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// The maximum number of connections that are served at the same time.
    pub total: usize,
    /// The maximum number of them from one IP address. A further one from there waits until another one from there ends, or is older than
    /// `grace` and is closed.
    pub per_address: usize,
    /// The age at which a connection may be closed to make room for another one.
    pub grace: Duration,
    /// The maximum lifetime of a connection, after which it is closed.
    pub lifetime: Duration,
    /// The time after which connections that have arrived meanwhile are accepted together; zero accepts each of them at once.
    pub interval: Duration,
}

/// Accepts connections within `limits` and serves each with `connection`, which gets the stream and the client's IP address, until the
/// future is dropped, which also closes the open connections. `server` names the server in the log.
pub async fn serve_connections<F: Future<Output = ()> + Send + 'static>(
    listener: TcpListener,
    limits: ConnectionLimits,
    server: &'static str,
    connection: impl Fn(TcpStream, IpAddr) -> F,
) -> Infallible {
    let mut open = OpenConnections { limits, oldest_first: VecDeque::new(), tasks: JoinSet::new() };
    let mut waiting = VecDeque::new();
    let mut due = None;
    loop {
        let mut accepted = tokio::select! {
            accepted = listener.accept() => Poll::Ready(accepted),
            Some(_) = open.tasks.join_next(), if due.is_some() => Poll::Pending,
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => Poll::Pending,
        };
        let mut room = MAX_WAITING;
        while let Poll::Ready(connection) = accepted {
            match connection {
                Ok((stream, peer)) => waiting.push_back((peer.ip().to_canonical(), stream)),
                Err(error) => {
                    warn!(server, %error, "a server cannot accept a connection");
                    sleep(ACCEPT_DELAY).await;
                }
            }
            if waiting.len() > MAX_WAITING {
                let most = most_frequent(waiting.iter().map(|(peer, _)| *peer));
                let newest = waiting.iter().rposition(|(peer, _)| Some(*peer) == most);
                newest.and_then(|newest| waiting.remove(newest));
            }
            // The open connections are served in between.
            room -= 1;
            accepted = if room == 0 {
                Poll::Pending
            } else {
                listener.poll_accept(&mut Context::from_waker(Waker::noop()))
            };
        }
        due = None;
        let mut blocked = Vec::new();
        for (peer, stream) in std::mem::take(&mut waiting) {
            let free_at = if blocked.contains(&peer) { due } else { open.make_room(peer) };
            match free_at {
                None => open.add(peer, server, connection(stream, peer)),
                Some(at) => {
                    due = Some(due.map_or(at, |due: Instant| due.min(at)));
                    blocked.push(peer);
                    waiting.push_back((peer, stream));
                }
            }
        }
        if !limits.interval.is_zero() {
            sleep(limits.interval).await;
        }
    }
}

/// The connections that are being served. They are closed when this is dropped.
struct OpenConnections {
    limits: ConnectionLimits,
    oldest_first: VecDeque<OpenConnection>,
    tasks: JoinSet<()>,
}

/// A connection that is being served: its address, the time at which that began, and its task.
struct OpenConnection {
    peer: IpAddr,
    since: Instant,
    task: AbortHandle,
}

impl OpenConnections {
    /// Makes room for a connection from `peer`: if there are too many, closes the oldest one from there or, at the total limit, from the
    /// address that has most of them. Returns the time from which on that one may be closed, if it is not old enough.
    fn make_room(&mut self, peer: IpAddr) -> Option<Instant> {
        while self.tasks.try_join_next().is_some() {}
        self.oldest_first.retain(|open| !open.task.is_finished());
        let peers = || self.oldest_first.iter().map(|open| open.peer);
        let from = if peers().filter(|of| *of == peer).count() >= self.limits.per_address {
            Some(peer)
        } else if self.oldest_first.len() >= self.limits.total {
            most_frequent(peers())
        } else {
            None
        };
        let oldest = self.oldest_first.iter().position(|open| Some(open.peer) == from)?;
        let free_at = self.oldest_first[oldest].since + self.limits.grace;
        if free_at > Instant::now() {
            return Some(free_at);
        }
        if let Some(open) = self.oldest_first.remove(oldest) {
            open.task.abort();
        }
        None
    }

    /// Serves a connection from `peer` in a task.
    fn add(
        &mut self,
        peer: IpAddr,
        server: &'static str,
        serving: impl Future<Output = ()> + Send + 'static,
    ) {
        let served = timeout(self.limits.lifetime, serving);
        let served = async move {
            if served.await.is_err() {
                debug!(server, "a connection timed out");
            }
        };
        let task = self.tasks.spawn(served);
        self.oldest_first.push_back(OpenConnection { peer, since: Instant::now(), task });
    }
}

/// Returns the address that occurs most often; `None` if there is none.
fn most_frequent(peers: impl Iterator<Item = IpAddr>) -> Option<IpAddr> {
    let mut counts = HashMap::new();
    for peer in peers {
        *counts.entry(peer).or_insert(0_usize) += 1;
    }
    counts.into_iter().max_by_key(|(peer, count)| (*count, *peer)).map(|(peer, _)| peer)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpSocket;
    use tokio::task::JoinHandle;

    use super::*;

    const GRACE: Duration = Duration::from_secs(2);

    /// A server that ends with the test.
    struct Server(SocketAddr, JoinHandle<Infallible>);

    impl Drop for Server {
        fn drop(&mut self) {
            self.1.abort();
        }
    }

    impl Server {
        /// Starts a server with these limits. It answers one byte with another one, and panics at the byte `!`.
        async fn start(total: usize, per_address: usize, grace: Duration) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let lifetime = GRACE * 10;
            let limits = ConnectionLimits { total, per_address, grace, lifetime, interval: Duration::ZERO };
            Self(address, tokio::spawn(serve_connections(listener, limits, "echo", |stream, _| echo(stream))))
        }

        async fn connect(&self, from: &str) -> TcpStream {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind(from.parse().unwrap()).unwrap();
            socket.connect(self.0).await.unwrap()
        }

        async fn idle(&self, from: &str, count: usize) -> Vec<TcpStream> {
            let mut idle = Vec::new();
            for _ in 0..count {
                idle.push(self.connect(from).await);
            }
            idle
        }

        async fn answers(&self, from: &str) -> bool {
            answers(self.connect(from).await).await
        }
    }

    async fn echo(mut stream: TcpStream) {
        let mut byte = [0];
        if stream.read_exact(&mut byte).await.is_ok() {
            assert_ne!(byte, *b"!");
            let _ = stream.write_all(&byte).await;
        }
    }

    async fn answers(mut stream: TcpStream) -> bool {
        stream.write_all(b"a").await.is_ok() && stream.read_u8().await.is_ok()
    }

    const ONE: &str = "127.0.0.1:0";
    const OTHER: &str = "127.0.0.2:0";

    #[tokio::test(start_paused = true)]
    async fn at_the_limit_of_an_address_another_connection_waits_until_the_oldest_one_is_old_and_is_closed() {
        let server = Server::start(9, 2, GRACE).await;
        let mut idle = server.idle(ONE, 2).await;
        let began = Instant::now();
        assert!(server.answers(ONE).await);
        assert_eq!(began.elapsed().as_secs(), GRACE.as_secs());
        assert_eq!(idle[0].read(&mut [0]).await.unwrap_or(0), 0, "the oldest one is closed");
    }

    #[tokio::test(start_paused = true)]
    async fn at_the_limit_a_connection_that_ends_or_panics_makes_room_at_once() {
        for last in [b"b", b"!"] {
            let server = Server::start(9, 2, GRACE).await;
            let mut idle = server.idle(ONE, 2).await;
            let waiting = tokio::spawn(answers(server.connect(ONE).await));
            tokio::task::yield_now().await;
            idle[1].write_all(last).await.unwrap();
            assert!(timeout(GRACE / 2, waiting).await.unwrap().unwrap());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_one_address_delays_no_connection_of_another_one() {
        let server = Server::start(9, 2, GRACE).await;
        let mut flood = Vec::new();
        for _ in 0..3 {
            flood.extend(server.idle(ONE, 200).await);
            assert!(timeout(GRACE / 2, server.answers(OTHER)).await.expect("it does not wait"));
        }
        assert_eq!(flood.last_mut().unwrap().read(&mut [0]).await.unwrap_or(0), 0, "too many wait");
    }

    #[tokio::test(start_paused = true)]
    async fn at_the_total_limit_the_address_with_most_connections_makes_room() {
        let server = Server::start(4, 3, GRACE).await;
        let mut other = server.idle(OTHER, 1).await;
        let mut idle = server.idle(ONE, 3).await;
        assert!(timeout(GRACE * 2, server.answers("127.0.0.3:0")).await.unwrap());
        assert_eq!(idle[0].read(&mut [0]).await.unwrap_or(0), 0, "it is the oldest one from there");
        assert!(answers(other.remove(0)).await);
    }

    #[tokio::test]
    async fn connections_that_arrive_together_from_one_address_are_all_served() {
        let server = Server::start(9, 2, GRACE * 100).await;
        let connections = server.idle(ONE, 200).await;
        for connection in connections {
            assert!(answers(connection).await);
        }
    }
}
