//! The HTTP endpoints at which bases report: `/heartbeat` and `/queryBaseline`, below `/TOKEN` if the options have a token.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;

use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde::de::DeserializeOwned;
use staffetta_driver::tunnel::{BaselineError, NodeActivation, SendError, TunnelSender};
use tokio::time::Instant;
use tracing::debug;

use super::TunnelState;
use super::bases::AddressClaimError;
use crate::module::Module;
use crate::wire::{BaseMetadata, BaseReport};

/// The maximum size of a report, in bytes.
const MAX_REPORT: usize = 64 * 1024;

/// Responds to an HTTP request that comes from the address `peer`, such as the report of a base, and counts rejected reports.
pub(super) async fn respond(
    shared: &TunnelState,
    sender: &TunnelSender,
    peer: IpAddr,
    request: Request<Incoming>,
) -> Response<String> {
    let (head, body) = request.into_parts();
    let count = |_: &ReportRejection| {
        shared.rejected.fetch_add(1, Ordering::Relaxed);
    };
    // Nothing of a base is lost if its baseline is not known yet.
    let count_baseline = |rejection: &ReportRejection| {
        if rejection.0 != StatusCode::SERVICE_UNAVAILABLE {
            count(rejection);
        }
    };
    let token = shared.options.token.as_ref();
    let path = token.map_or(Some(head.uri.path()), |token| authenticated(head.uri.path(), token.expose()));
    let answered = match path.unwrap_or_default() {
        "/heartbeat" | "/queryBaseline" if head.method != Method::POST => {
            Err(ReportRejection(StatusCode::METHOD_NOT_ALLOWED, "use POST".to_owned()))
        }
        "/heartbeat" => heartbeat(shared, sender, peer, body).await.inspect_err(count),
        "/queryBaseline" => query_baseline(shared, sender, peer, body).await.inspect_err(count_baseline),
        "" => Err(ReportRejection(
            StatusCode::UNAUTHORIZED,
            "the path does not begin with the token".to_owned(),
        ))
        .inspect_err(count),
        _ => Err(ReportRejection(StatusCode::NOT_FOUND, String::new())),
    };
    answered.unwrap_or_else(ReportRejection::into_response)
}

/// Returns the part of a path after `/TOKEN`; `None` if the path does not begin with the token. The time of the comparison does not depend
/// on the place of a difference.
fn authenticated<'p>(path: &'p str, token: &str) -> Option<&'p str> {
    let (given, rest) = path.strip_prefix('/')?.split_at_checked(token.len())?;
    let difference =
        given.bytes().zip(token.bytes()).fold(0, |difference, (one, other)| difference | (one ^ other));
    (difference == 0 && rest.starts_with('/')).then_some(rest)
}

/// Handles `POST /heartbeat`: records the address of the base, and passes its description to the virtual-node handler. A base that
/// stops has the status `Deactivated` in the description.
async fn heartbeat(
    shared: &TunnelState,
    sender: &TunnelSender,
    peer: IpAddr,
    body: Incoming,
) -> Result<Response<String>, ReportRejection> {
    let (id, mut node) = parse::<BaseReport>(body).await?.read().map_err(ReportRejection::invalid)?;
    let ip = node.network_info.node_ip.unwrap_or(peer);
    if ip != peer && !shared.in_base_networks(ip) {
        let text = format!("localIP: the report comes from {peer}, not from {ip} (see base_networks)");
        return Err(ReportRejection(StatusCode::FORBIDDEN, text));
    }
    node.network_info.node_ip = Some(ip);
    let address = SocketAddr::new(ip, node.network_info.port.unwrap_or_default());
    let ends = node.metadata.status == NodeActivation::Deactivated;
    {
        // Both at once: the address may be replaced by that in the Node object.
        let mut bases = shared.bases.lock();
        bases.record(&id, address, Instant::now())?;
        sender.node_discovered(&id, node)?;
    }
    debug!(base = %id, %address, ends, "a base reports");
    Ok(response(StatusCode::OK, "text/plain; charset=utf-8", "SUCCESS".to_owned()))
}

/// Handles `POST /queryBaseline` of a base that has just started: returns the modules that it is to load, or a status that makes it ask
/// again.
async fn query_baseline(
    shared: &TunnelState,
    sender: &TunnelSender,
    peer: IpAddr,
    body: Incoming,
) -> Result<Response<String>, ReportRejection> {
    let metadata = parse::<BaseMetadata>(body).await?;
    let id = metadata.id().map_err(|error| ReportRejection::invalid(format!("identity: {error}")))?;
    let address = shared.bases.lock().address(&id);
    // Any process may report such an address, since a base may be there and send its requests from another one.
    if !address.is_some_and(|address| shared.in_base_networks(address.ip())) {
        shared.bases.lock().check(&id, peer, Instant::now())?;
    }
    let containers = sender.query_baseline(&id, metadata.baseline_request()).await?;
    let modules = serde_json::to_string(&Module::of_all(&containers, &id));
    let modules =
        modules.map_err(|error| ReportRejection(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(response(StatusCode::OK, "application/json", modules))
}

/// Reads and parses the body of a report. The error has the position of the mistake, and nothing of the body.
async fn parse<T: DeserializeOwned>(body: Incoming) -> Result<T, ReportRejection> {
    let body = Limited::new(body, MAX_REPORT).collect().await.map_err(|error| {
        let large = error.is::<LengthLimitError>();
        let status = if large { StatusCode::PAYLOAD_TOO_LARGE } else { StatusCode::BAD_REQUEST };
        ReportRejection(status, error.to_string())
    })?;
    serde_json::from_slice(&body.to_bytes()).map_err(|error| ReportRejection::invalid(error.to_string()))
}

/// Returns an HTTP response with this status, and a body of this content type.
fn response(status: StatusCode, content_type: &'static str, body: String) -> Response<String> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// A report that is not accepted: the HTTP status of the response, and the reason in its body, for the log of the base.
struct ReportRejection(StatusCode, String);

impl ReportRejection {
    /// Rejects a report whose content cannot be used, for the reason `why`.
    fn invalid(why: String) -> Self {
        Self(StatusCode::BAD_REQUEST, why)
    }

    /// Returns the response that rejects the report.
    fn into_response(self) -> Response<String> {
        let Self(status, text) = self;
        debug!(%status, error = text, "a report of a base is rejected");
        let mut response = response(status, "text/plain; charset=utf-8", text);
        if status == StatusCode::METHOD_NOT_ALLOWED {
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        }
        response
    }
}

impl From<AddressClaimError> for ReportRejection {
    fn from(error: AddressClaimError) -> Self {
        let status = match error {
            AddressClaimError::Taken => StatusCode::CONFLICT,
            AddressClaimError::TooMany(_) | AddressClaimError::TooManyNew(_) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        };
        Self(status, error.to_string())
    }
}

impl From<SendError> for ReportRejection {
    fn from(error: SendError) -> Self {
        let status = match error {
            SendError::QueueFull { .. } => StatusCode::TOO_MANY_REQUESTS,
            SendError::TooManyContainers { .. } | SendError::TooMuchTunnelData { .. } => {
                StatusCode::PAYLOAD_TOO_LARGE
            }
            SendError::Closed | SendError::TooManyNodes { .. } => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self(status, error.to_string())
    }
}

impl From<BaselineError> for ReportRejection {
    fn from(error: BaselineError) -> Self {
        match error {
            BaselineError::Send(error) => error.into(),
            other => Self(StatusCode::SERVICE_UNAVAILABLE, other.to_string()),
        }
    }
}
