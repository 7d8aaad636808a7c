//! Sends commands to bases.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl};
use serde::Serialize;
use serde::de::DeserializeOwned;
use staffetta_driver::tunnel::NodeId;
use staffetta_driver::{DriverError, Reason, RequestRecord};
use tokio::net::TcpStream;
use tracing::{Instrument, info_span};

use crate::clock::boot_time;
use crate::operations::ArkletCommand;
use crate::options::{HttpTunnelOptions, milliseconds};
use crate::wire::ArkResponse;

/// The maximum size of a response, in bytes.
const MAX_RESPONSE: usize = 1 << 20;

/// The time without data after which a base that executes a command is probed, and the time between two probes.
const PROBE_INTERVAL: Duration = Duration::from_secs(15);

/// The number of probes without an answer after which the connection ends.
const PROBES: u32 = 3;

/// The HTTP client of all bases. It follows no redirect, repeats no request, and keeps no connection, since Arklet closes each of them
/// after its response.
#[derive(Debug)]
pub(super) struct BaseClient {
    /// The time limit of opening a connection to a base.
    connect: Duration,
    /// The time limit of a query, including its connection and response.
    query: Duration,
    /// The time limit of a change (to load or unload a module), including its connection and response.
    operation: Duration,
    /// The time within which a change is sent or given up, for the error message.
    send: Duration,
}

impl BaseClient {
    /// Creates the client with the time limits of the options.
    pub(super) fn new(options: &HttpTunnelOptions) -> Self {
        Self {
            connect: milliseconds(options.connect_timeout_ms),
            query: milliseconds(options.query_timeout_ms),
            operation: milliseconds(options.operation_timeout_ms),
            send: options.send_limit,
        }
    }

    /// Sends a command to the base at `address` and returns its response, even if its code is that of a failure. The error of a change says
    /// that the change may have taken effect, unless nothing was sent, because there was no connection or the boot time `send_by` had
    /// passed.
    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        base: &NodeId,
        address: SocketAddr,
        command: ArkletCommand,
        body: &impl Serialize,
        send_by: Option<Duration>,
    ) -> Result<ArkResponse<T>, BaseCallFailure> {
        let changes = command.is_change();
        let request = request(address, command, body).map_err(|error| {
            let error = DriverError::new(Reason::Refused, command.step()).because(error);
            BaseCallFailure { error, is_elsewhere: false }
        })?;
        let limit = if changes { self.operation } else { self.query };
        let answered = async {
            let mut record = RequestRecord::start("POST", &format!("/{}", command.name()), changes);
            let stream = self.connect(address, changes).await.map_err(CallError::Unreachable)?;
            let (status, body) = self.exchange(stream, request, send_by).await?;
            record.set_status(status.as_u16());
            parse(base, status, &body)
        };
        let span = info_span!("base request", otel.name = command.step(), otel.kind = "client", base = base.as_str(),
            server.address = %address);
        let answered = tokio::time::timeout(limit, answered).instrument(span).await;
        answered.unwrap_or(Err(CallError::Timeout(limit))).map_err(|error| {
            let reason = match error {
                CallError::OtherBase(_) => Reason::Conflict,
                _ => Reason::Unavailable,
            };
            let fault = DriverError::new(reason, command.step()).detail(format!("base {base}: {error}"));
            let is_elsewhere = matches!(error, CallError::Unreachable(_) | CallError::OtherBase(_));
            let error = if changes && !error.is_unsent() { fault.maybe_applied() } else { fault };
            BaseCallFailure { error, is_elsewhere }
        })
    }

    /// Sends a request, unless the boot time `send_by` has passed, and reads the response, up to the maximum size.
    async fn exchange(
        &self,
        stream: TcpStream,
        request: Request<String>,
        send_by: Option<Duration>,
    ) -> Result<(StatusCode, Bytes), CallError> {
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(CallError::ConnectionFailed)?;
        let mut answered = pin!(async {
            // A process that was suspended while it connected sends nothing.
            if send_by.is_some_and(|limit| limit < boot_time()) {
                return Err(CallError::TooLate(self.send));
            }
            let response = sender.send_request(request).await?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, MAX_RESPONSE).collect().await;
            Ok((head.status, body.map_err(CallError::of_body)?.to_bytes()))
        });
        tokio::select! {
            biased;
            answered = &mut answered => answered,
            // All is read, or the connection failed: the other future has the result.
            _ = connection => answered.await,
        }
    }

    /// Opens a connection within its time limit. `changes` is `true` if it is for a change, whose response may take minutes.
    async fn connect(&self, address: SocketAddr, changes: bool) -> io::Result<TcpStream> {
        let stream = tokio::time::timeout(self.connect, TcpStream::connect(address)).await??;
        if changes {
            // Without it, a base that is gone is noticed only at the time limit of the request.
            let _ = keep_alive(&stream);
        }
        Ok(stream)
    }
}

/// Enables TCP keep-alive: the operating system probes the other end of an idle connection, and ends it if no probe is answered.
fn keep_alive(stream: &TcpStream) -> rustix::io::Result<()> {
    set_socket_keepalive(stream, true)?;
    set_tcp_keepidle(stream, PROBE_INTERVAL)?;
    set_tcp_keepintvl(stream, PROBE_INTERVAL)?;
    set_tcp_keepcnt(stream, PROBES)
}

/// Returns the HTTP request that sends a command with a JSON body.
fn request(
    address: SocketAddr,
    command: ArkletCommand,
    body: &impl Serialize,
) -> serde_json::Result<Request<String>> {
    let request = Request::post(format!("/{}", command.name()))
        .header(HOST, address.to_string())
        .header(CONNECTION, "close")
        .header(CONTENT_TYPE, "application/json")
        .body(serde_json::to_string(body)?);
    Ok(request.expect("paths and addresses are valid in a request"))
}

/// The failure of a command that was sent to a base.
pub(super) struct BaseCallFailure {
    pub(super) error: DriverError,
    /// `true` if the base is not at the address: there is no connection, or another base answers.
    pub(super) is_elsewhere: bool,
}

/// Parses a response, and checks that the base that it names is the one that was called.
fn parse<T: DeserializeOwned>(
    base: &NodeId,
    status: StatusCode,
    body: &[u8],
) -> Result<ArkResponse<T>, CallError> {
    if status != StatusCode::OK {
        return Err(CallError::Status(status.as_u16()));
    }
    let response: ArkResponse<T> = serde_json::from_slice(body).map_err(CallError::Malformed)?;
    match response.base() {
        Some(other) if other != base.as_str() => {
            Err(CallError::OtherBase(crate::wire::message(other).chars().take(64).collect()))
        }
        _ => Ok(response),
    }
}

/// The error of a command that was sent to a base. Its message quotes nothing of the response except the id of a base.
#[derive(Debug, thiserror::Error)]
enum CallError {
    /// There was no connection to the base.
    #[error("it cannot be reached: {0}")]
    Unreachable(io::Error),
    /// The request was not sent within this time limit.
    #[error("the request was not sent within {} s, so it is not sent at all", .0.as_secs_f32())]
    TooLate(Duration),
    /// The connection failed before the response was complete.
    #[error("the connection broke: {}", cause(.0))]
    ConnectionFailed(#[from] hyper::Error),
    /// There was no complete response within this time limit.
    #[error("no answer within {} s", .0.as_secs_f32())]
    Timeout(Duration),
    /// The response is larger than [`MAX_RESPONSE`].
    #[error("the answer has more than {MAX_RESPONSE} bytes")]
    Oversized,
    /// The response has this HTTP status, which is not 200.
    #[error("HTTP {0}")]
    Status(u16),
    /// The response is not the expected JSON.
    #[error("the answer is malformed at line {}, column {}", .0.line(), .0.column())]
    Malformed(serde_json::Error),
    /// The response names another base than the one that was called; the value is its id.
    #[error("base {0:?} answers at its address")]
    OtherBase(String),
}

impl CallError {
    /// Classifies the error of a body: it is too large, or the connection failed.
    fn of_body(error: Box<dyn Error + Send + Sync>) -> Self {
        error.downcast().map_or(Self::Oversized, |error| Self::ConnectionFailed(*error))
    }

    /// Returns `true` if nothing of the request was sent.
    fn is_unsent(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::TooLate(_) => true,
            Self::ConnectionFailed(error) => error.is_canceled(),
            _ => false,
        }
    }
}

/// Returns the cause of an error of the HTTP client, or the error itself if it has no cause.
fn cause(error: &hyper::Error) -> &dyn Error {
    error.source().unwrap_or(error)
}

#[cfg(test)]
mod tests {
    use rustix::net::sockopt::{socket_keepalive, tcp_keepcnt, tcp_keepidle, tcp_keepintvl};
    use serde_json::{Value, json};
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_base_that_executes_a_change_is_probed_and_one_that_answers_a_query_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = BaseClient::new(&HttpTunnelOptions::default());
        let stream = client.connect(listener.local_addr().unwrap(), true).await.unwrap();
        assert!(socket_keepalive(&stream).unwrap());
        let intervals = [tcp_keepidle(&stream).unwrap(), tcp_keepintvl(&stream).unwrap()];
        assert_eq!((intervals, tcp_keepcnt(&stream).unwrap()), ([PROBE_INTERVAL; 2], PROBES));
        let query = client.connect(listener.local_addr().unwrap(), false).await.unwrap();
        assert!(!socket_keepalive(&query).unwrap());
    }

    #[tokio::test]
    async fn a_request_counts_as_unsent_only_if_its_connection_ended_before() {
        for sent in [false, true] {
            let (stream, mut peer) = tokio::io::duplex(4096);
            let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
            let address = "127.0.0.1:1".parse().unwrap();
            let request = request(address, ArkletCommand::InstallBiz, &json!({})).unwrap();
            let answered = sender.send_request(request);
            let error = if sent {
                let read = async move { peer.read_u8().await.unwrap() };
                tokio::join!(answered, connection, read).0
            } else {
                drop(connection);
                answered.await
            };
            let error = CallError::from(error.unwrap_err());
            assert_eq!(error.is_unsent(), !sent, "{error}");
        }
    }

    #[tokio::test]
    async fn a_change_that_is_due_too_late_is_not_sent_although_the_base_can_be_reached() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let operation_timeout_ms = std::num::NonZeroU64::new(10_000).unwrap();
        let options = HttpTunnelOptions { operation_timeout_ms, ..HttpTunnelOptions::default() };
        let client = BaseClient::new(&options);
        let (base, module) = ("b-1".parse().unwrap(), json!({}));
        let late = Some(boot_time().saturating_sub(Duration::from_millis(1)));
        let call = client.call::<Value>(&base, address, ArkletCommand::InstallBiz, &module, late);
        let received = async {
            let mut received = Vec::new();
            let _ = listener.accept().await.unwrap().0.read_to_end(&mut received).await;
            received
        };
        let (answer, received) = tokio::join!(call, received);
        let error = answer.err().unwrap().error.to_string();
        assert!(error.contains("not sent within 5 s") && !error.contains("may have taken effect"), "{error}");
        assert!(received.is_empty(), "{}", String::from_utf8_lossy(&received));
    }
}
