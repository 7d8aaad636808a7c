//! Sends commands to bases.

use std::error::Error;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, SizeHint};
use reqwest::header::CONTENT_TYPE;
use reqwest::{StatusCode, redirect};
use serde::Serialize;
use serde::de::DeserializeOwned;
use staffetta_driver::tunnel::NodeId;
use staffetta_driver::{DriverError, Reason, RequestRecord};
use tracing::{Instrument, info_span};

use crate::clock::{SEND_LIMIT, boot_time};
use crate::operations::ArkletCommand;
use crate::options::{HttpTunnelOptions, milliseconds};
use crate::wire::ArkResponse;

/// The maximum size of a response, in bytes.
const MAX_RESPONSE: usize = 1 << 20;

/// The HTTP client of all bases.
#[derive(Debug)]
pub(super) struct BaseClient {
    http: reqwest::Client,
    query_timeout: Duration,
    operation_timeout: Duration,
}

impl BaseClient {
    /// Creates the client. It follows no redirect, repeats no request, and keeps no connection.
    pub(super) fn new(options: &HttpTunnelOptions) -> Result<Self, DriverError> {
        // An error means that a provider is installed already. Without one, a client cannot be made where reqwest has TLS.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = reqwest::Client::builder()
            .no_proxy() // bases are near
            .redirect(redirect::Policy::none()) // a base cannot make us call another host
            .retry(reqwest::retry::never()) // a request is sent at most once
            .pool_max_idle_per_host(0) // Arklet closes a connection after its response
            .connect_timeout(milliseconds(options.connect_timeout_ms));
        let http = builder
            .build()
            .map_err(|error| DriverError::new(Reason::Refused, "make a client of bases").because(error))?;
        let query_timeout = milliseconds(options.query_timeout_ms);
        Ok(Self { http, query_timeout, operation_timeout: milliseconds(options.operation_timeout_ms) })
    }

    /// Sends a command to the base at `address` and returns its response, even if its code is that of a failure. The error
    /// of a change says that the change may have taken effect, unless it was not sent: there was no connection, or none before the boot
    /// time `send_by`.
    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        base: &NodeId,
        address: SocketAddr,
        command: ArkletCommand,
        body: &impl Serialize,
        send_by: Option<Duration>,
    ) -> Result<ArkResponse<T>, BaseCallFailure> {
        let changes = matches!(command, ArkletCommand::InstallBiz | ArkletCommand::UninstallBiz);
        let body = serde_json::to_vec(body).map_err(|error| {
            let error = DriverError::new(Reason::Refused, command.step()).because(error);
            BaseCallFailure { error, is_elsewhere: false }
        })?;
        let body = TimelyBody { content: Some(body.into()), send_by };
        let limit = if changes { self.operation_timeout } else { self.query_timeout };
        let answered = async {
            let mut record = RequestRecord::start("POST", &format!("/{}", command.name()), changes);
            let (status, body) = self.exchange(address, command, body).await?;
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
            let unsent = matches!(error, CallError::Unreachable(_) | CallError::TooLate(_));
            let is_elsewhere = matches!(error, CallError::Unreachable(_) | CallError::OtherBase(_));
            let error = if changes && !unsent { fault.maybe_applied() } else { fault };
            BaseCallFailure { error, is_elsewhere }
        })
    }

    /// Sends a request and reads the response, up to the maximum size. There is no time limit: the caller sets it.
    async fn exchange(
        &self,
        address: SocketAddr,
        command: ArkletCommand,
        body: TimelyBody,
    ) -> Result<(StatusCode, Vec<u8>), CallError> {
        let request = self.http.post(format!("http://{address}/{}", command.name()));
        let request = request.header(CONTENT_TYPE, "application/json").body(reqwest::Body::wrap(body));
        let mut response = request.send().await.map_err(CallError::of)?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(CallError::of)? {
            if body.len() + chunk.len() > MAX_RESPONSE {
                return Err(CallError::Oversized);
            }
            body.extend_from_slice(&chunk);
        }
        Ok((response.status(), body))
    }
}

/// A call that failed.
pub(super) struct BaseCallFailure {
    pub(super) error: DriverError,
    /// `true` if the base is not at the address: there is no connection, or another base answers.
    pub(super) is_elsewhere: bool,
}

/// The body of a request with a deadline. The body is read when the connection is open, just before the request is written, and fails if
/// the deadline has passed. So a process that was suspended while it connected sends nothing.
struct TimelyBody {
    content: Option<Bytes>,
    /// The deadline as a boot time; `None` for no deadline.
    send_by: Option<Duration>,
}

impl Body for TimelyBody {
    type Data = Bytes;
    type Error = TooLate;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TooLate>>> {
        if self.send_by.is_some_and(|limit| limit < boot_time()) {
            return Poll::Ready(Some(Err(TooLate)));
        }
        Poll::Ready(self.content.take().map(|content| Ok(Frame::data(content))))
    }

    fn is_end_stream(&self) -> bool {
        self.content.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.content.as_ref().map_or(0, |content| content.len() as u64))
    }
}

/// The error of a request that was not sent in time.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the request was not sent within {} s, so it is not sent at all", SEND_LIMIT.as_secs())]
struct TooLate;

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
    Unreachable(reqwest::Error),
    /// The request was not sent in time.
    #[error(transparent)]
    TooLate(TooLate),
    /// The connection failed before the response was complete.
    #[error("the connection broke: {0}")]
    ConnectionFailed(reqwest::Error),
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
    /// Classifies an error of the client, by whether there was a connection. The URL is removed: the base is named elsewhere.
    fn of(error: reqwest::Error) -> Self {
        let error = error.without_url();
        let mut causes = std::iter::successors(error.source(), |&cause| cause.source());
        if let Some(late) = causes.find_map(|cause| cause.downcast_ref()) {
            return Self::TooLate(*late);
        }
        if error.is_connect() { Self::Unreachable(error) } else { Self::ConnectionFailed(error) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_change_that_is_due_too_late_is_not_sent_although_the_base_can_be_reached() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let operation_timeout_ms = std::num::NonZeroU64::new(10_000).unwrap();
        let options = HttpTunnelOptions { operation_timeout_ms, ..HttpTunnelOptions::default() };
        let client = BaseClient::new(&options).unwrap();
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
