//! Requests to the admin server of a controller.

pub(super) mod address;
#[cfg(feature = "remote")]
mod leader;
#[cfg(feature = "remote")]
mod leader_error;

use std::fmt;
use std::io;
use std::time::Duration;

#[cfg(feature = "remote")]
use futures_util::future::join_all;
use http::header::{CONNECTION, HOST};
use http::uri::Authority;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use staffetta_handler::causes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;
use tower::BoxError;

use crate::observe::check::CheckReport;
use crate::observe::state::{Query, StateSnapshot};

#[cfg(feature = "remote")]
pub(super) use leader::{Leader, LeaderArguments};
#[cfg(feature = "remote")]
use leader_error::LeaderError;

/// The time limit for connecting to the admin server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The time limit for receiving the whole response of the admin server.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// The maximum size of a response, in bytes.
const MAX_RESPONSE: usize = 64 << 20;

/// The path of the admin server at which a `POST` runs the checks.
const CHECK: &str = "/debug/check";

/// The path of the admin server at which the filter of the log is read and replaced.
const LOG_LEVEL: &str = "/debug/log-level";

/// The reason why the request to the admin server failed.
#[derive(Debug, thiserror::Error)]
pub(in crate::operate::cli) enum RequestError {
    /// The async runtime of the HTTP client cannot be created.
    #[error("cannot create an HTTP client")]
    Client(#[source] io::Error),
    /// No connection to the admin server could be opened.
    #[error(
        "no controller is reachable at http://{address}; pass --admin, or use `kubectl staffetta`, which finds the leader"
    )]
    Unreachable {
        /// The address of the admin server.
        address: Authority,
        /// The error of the connection attempt, or a timeout.
        source: io::Error,
    },
    /// The leader cannot be found or reached.
    #[cfg(feature = "remote")]
    #[error(transparent)]
    Leader(Box<LeaderError>),
    /// The connection or the time limit ended before the whole response was received.
    #[error("{server} does not respond")]
    NoResponse {
        /// The server, as its URL, `the leader` or `the replica POD`.
        server: String,
        /// The error of HTTP or of the connection, or a timeout.
        source: BoxError,
    },
    /// The server rejected the request, with this message.
    #[error("{0}")]
    Rejected(String),
    /// The server returned an unexpected status code.
    #[error("{server} returned {code}{body}; it may not be the admin server of this version of staffetta")]
    Code {
        /// The server, as its URL, `the leader` or `the replica POD`.
        server: String,
        /// The status code.
        code: StatusCode,
        /// The body in parentheses; empty if it is no short text.
        body: String,
    },
    /// The body of the response is not the expected JSON document.
    #[error("cannot decode the response of {server}; the controller may be another version of staffetta")]
    Decode {
        /// The server, as its URL, `the leader` or `the replica POD`.
        server: String,
        /// The error of the JSON decoder.
        source: serde_json::Error,
    },
}

#[cfg(feature = "remote")]
impl From<LeaderError> for RequestError {
    fn from(error: LeaderError) -> Self {
        Self::Leader(Box::new(error))
    }
}

impl RequestError {
    /// Returns `true` if the same request will fail again until somebody changes something.
    pub(super) fn is_permanent(&self) -> bool {
        match self {
            Self::Client(_) | Self::Rejected(_) | Self::Decode { .. } => true,
            #[cfg(feature = "remote")]
            Self::Leader(error) => error.is_permanent(),
            Self::Unreachable { .. } | Self::NoResponse { .. } | Self::Code { .. } => false,
        }
    }
}

/// A client of one admin server.
pub(super) enum AdminClient {
    /// The server at an address.
    Address(Authority),
    /// The server of the replica that leads.
    #[cfg(feature = "remote")]
    Leader(Leader),
}

impl AdminClient {
    /// Builds the client of the leader. No request is sent.
    #[cfg(feature = "remote")]
    pub(super) async fn of_leader(arguments: LeaderArguments) -> Result<Self, RequestError> {
        Ok(Self::Leader(Leader::new(arguments).await?))
    }

    /// Returns the namespace in which objects are searched if the user names none: that of the kubeconfig's context; `None` for all.
    pub(super) fn default_namespace(&self) -> Option<&str> {
        match self {
            Self::Address(_) => None,
            #[cfg(feature = "remote")]
            Self::Leader(leader) => Some(leader.client.default_namespace()),
        }
    }

    /// Returns the state of the controller. `query` selects the objects. If a handler runs in every replica, and this is not a client of a
    /// fixed address, the state of the leader is merged with that of the other replicas.
    pub(super) async fn state(&self, query: &Query) -> Result<StateSnapshot, RequestError> {
        let query = serde_urlencoded::to_string(query).expect("it has only text, numbers and booleans");
        let path = format!("/debug/state?{query}");
        let mut state: StateSnapshot = self.ask(Method::GET, &path).await?;
        #[cfg(feature = "remote")]
        if state.handlers.iter().any(|handler| handler.in_every_replica) {
            let others = self.ask_others(&state.identity, Method::GET, &path).await;
            add_others(&mut state, others);
        }
        Ok(state)
    }

    /// Makes the controller run its checks, and returns their findings.
    #[cfg(feature = "remote")]
    pub(super) async fn check(&self) -> Result<CheckReport, RequestError> {
        self.ask(Method::POST, CHECK).await
    }

    /// Makes all replicas except `leader` (an identity) run their checks, and returns the findings of each; empty for a client with a fixed
    /// address, which does not know the replicas.
    #[cfg(feature = "remote")]
    pub(super) async fn check_others(&self, leader: &str) -> Result<Answers<CheckReport>, RequestError> {
        self.ask_others(leader, Method::POST, CHECK).await
    }

    /// Sends one request without a body to the server, and decodes the response.
    async fn ask<T: DeserializeOwned>(&self, method: Method, path: &str) -> Result<T, RequestError> {
        decode(&self.send(method, path, String::new()).await?, &self.to_string())
    }

    /// Sends one request without a body to each replica except `leader` (an identity), and decodes the responses; empty for a client with
    /// a fixed address, which does not know the replicas.
    #[cfg(feature = "remote")]
    async fn ask_others<T: DeserializeOwned>(
        &self,
        leader: &str,
        method: Method,
        path: &str,
    ) -> Result<Answers<T>, RequestError> {
        let Self::Leader(client) = self else { return Ok(Vec::new()) };
        let ask = async |pod: String| {
            let request = request(method.clone(), path, "localhost", String::new());
            let response = client.send_to(&pod, request).await.map_err(RequestError::from);
            let server = format!("the replica {pod}");
            let answer = response.and_then(|(code, body)| decode(&success(code, body, &server)?, &server));
            (pod, answer)
        };
        let others = client.others(leader).await?;
        Ok(join_all(others.into_iter().map(ask)).await)
    }

    /// Returns the filter of the controller's log.
    pub(super) async fn log_filter(&self) -> Result<String, RequestError> {
        Ok(text(&self.send(Method::GET, LOG_LEVEL, String::new()).await?))
    }

    /// Replaces the filter of the controller's log.
    pub(super) async fn set_log_filter(&self, filter: String) -> Result<(), RequestError> {
        self.send(Method::PUT, LOG_LEVEL, filter).await.map(drop)
    }

    /// Sends one request to the server, and returns the body of a successful response.
    async fn send(&self, method: Method, path: &str, body: String) -> Result<Bytes, RequestError> {
        let (code, body) = match self {
            Self::Address(address) => send_to(address, request(method, path, address.as_str(), body)).await?,
            #[cfg(feature = "remote")]
            Self::Leader(leader) => leader.send(request(method, path, "localhost", body)).await?,
        };
        success(code, body, &self.to_string())
    }
}

/// The decoded responses of other replicas, each with the name of its pod.
#[cfg(feature = "remote")]
type Answers<T> = Vec<(String, Result<T, RequestError>)>;

/// Adds the state of the other replicas to that of the leader. A replica that does not return its state is listed as missing, with the
/// error: during an upgrade, it may have another version. If the replicas cannot be found, the error is listed, too.
#[cfg(feature = "remote")]
fn add_others(state: &mut StateSnapshot, others: Result<Answers<StateSnapshot>, RequestError>) {
    let others = others.unwrap_or_else(|error| {
        state.add_missing_replicas("the other replicas".to_owned(), causes(&error));
        Vec::new()
    });
    for (pod, answer) in others {
        match answer {
            Ok(other) => state.merge(other),
            Err(error) => state.add_missing_replicas(format!("replica {pod}"), causes(&error)),
        }
    }
}

/// Decodes the body of a response of `server`.
fn decode<T: DeserializeOwned>(body: &Bytes, server: &str) -> Result<T, RequestError> {
    serde_json::from_slice(body).map_err(|source| RequestError::Decode { server: server.to_owned(), source })
}

/// Builds a request to an admin server, after which the connection is closed. `host` is the value of the header `Host`.
fn request(method: Method, path: &str, host: &str, body: String) -> Request<Full<Bytes>> {
    let request = Request::builder().method(method).uri(path).header(HOST, host).header(CONNECTION, "close");
    request.body(Full::from(body)).expect("the path and the host are parts of a URL")
}

/// Returns the body of a response with the status 200. Any other response of `server` is an error.
fn success(code: StatusCode, body: Bytes, server: &str) -> Result<Bytes, RequestError> {
    match code {
        StatusCode::OK => Ok(body),
        StatusCode::BAD_REQUEST | StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS => {
            Err(RequestError::Rejected(text(&body)))
        }
        code => {
            let body = if body.len() > 500 { String::new() } else { format!(" ({})", text(&body)) };
            Err(RequestError::Code { server: server.to_owned(), code, body })
        }
    }
}

impl fmt::Display for AdminClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "http://{address}"),
            #[cfg(feature = "remote")]
            Self::Leader(_) => f.write_str("the leader"),
        }
    }
}

/// Sends one request to the admin server at `address`, and returns the status code and the body of the response.
async fn send_to(
    address: &Authority,
    request: Request<Full<Bytes>>,
) -> Result<(StatusCode, Bytes), RequestError> {
    let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect(address.as_str())).await;
    let stream = stream.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    let unreachable = |source| RequestError::Unreachable { address: address.clone(), source };
    let response = exchange(stream.map_err(unreachable)?, request).await;
    response.map_err(|source| RequestError::NoResponse { server: format!("http://{address}"), source })
}

/// Runs `request` to completion, on a new runtime with one thread.
pub(super) fn block_on<T, E: From<RequestError>>(
    request: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(RequestError::Client)?.block_on(request)
}

/// Sends one request over `stream`, and returns the status code and the body of the response.
async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: Request<Full<Bytes>>,
) -> Result<(StatusCode, Bytes), BoxError> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // Its error is that of the response, too.
    let _connection = AbortOnDropHandle::new(tokio::spawn(connection));
    let response = async {
        let response = sender.send_request(request).await?;
        let code = response.status();
        let body = Limited::new(response.into_body(), MAX_RESPONSE).collect().await?;
        Ok::<_, BoxError>((code, body.to_bytes()))
    };
    timeout(RESPONSE_TIMEOUT, response).await?
}

/// Returns the body as text, without white space at its end.
fn text(body: &Bytes) -> String {
    String::from_utf8_lossy(body).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::state::PhaseName;
    use crate::operate::cli::status::testing::{document, object};

    #[test]
    fn replicas_that_refuse_or_cannot_be_found_are_shown_beside_the_others() {
        let answer = |code, body: &str| {
            decode(&success(code, Bytes::from(body.to_owned()), "the replica")?, "the replica")
        };
        let other = serde_json::to_string(&document(vec![object("web", "failed", 1.0, None)])).unwrap();
        let others = vec![
            ("relay-1".to_owned(), answer(StatusCode::FORBIDDEN, "only from the loopback address")),
            ("relay-2".to_owned(), answer(StatusCode::TOO_MANY_REQUESTS, "ask again later")),
            ("relay-3".to_owned(), answer(StatusCode::OK, &other)),
        ];
        let mut state = document(Vec::new());
        add_others(&mut state, Ok(others));
        add_others(&mut state, Err(RequestError::Rejected("you may not list pods".to_owned())));
        assert_eq!((state.objects.len(), state.ready), (1, false));
        let reported = state.waits.iter().map(|wait| (wait.name.as_str(), wait.reason.as_deref().unwrap()));
        let expected = [
            ("replica relay-1", "only from the loopback address"),
            ("replica relay-2", "ask again later"),
            ("the other replicas", "you may not list pods"),
        ];
        assert_eq!(reported.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_server_that_refuses_is_quoted() {
        let said =
            |code| success(code, Bytes::from("another check runs\n"), "the leader").unwrap_err().to_string();
        assert_eq!(said(StatusCode::TOO_MANY_REQUESTS), "another check runs");
        assert_eq!(said(StatusCode::FORBIDDEN), "another check runs");
        assert!(said(StatusCode::NOT_FOUND).starts_with("the leader returned 404"));
    }

    #[test]
    fn a_query_becomes_the_query_of_a_url() {
        let query = Query {
            name: Some("a&b=c d".into()),
            phase: Some(PhaseName::Failed),
            limit: Some(3),
            ..Query::default()
        };
        let text = serde_urlencoded::to_string(query).unwrap();
        assert_eq!(text, "name=a%26b%3Dc+d&phase=failed&limit=3");
    }
}
