//! The HTTP endpoints at which bases report: `/heartbeat` and `/queryBaseline`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::middleware::map_response_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Json, Router};
use serde::de::DeserializeOwned;
use staffetta_driver::tunnel::{BaselineError, NodeActivation, SendError, TunnelSender};
use tokio::time::Instant;
use tracing::debug;

use super::bases::AddressClaimError;
use super::{TunnelState, serve::Peer};
use crate::module::Module;
use crate::wire::{BaseMetadata, BaseReport};

/// The maximum size of a report, in bytes.
const MAX_REPORT: usize = 64 * 1024;

/// The state that the handlers of the endpoints share.
#[derive(Clone)]
struct Endpoints {
    shared: Arc<TunnelState>,
    sender: TunnelSender,
}

/// Returns the endpoints `/heartbeat` and `/queryBaseline`.
pub(super) fn router(shared: Arc<TunnelState>, sender: TunnelSender) -> Router {
    let count = map_response_with_state(Arc::clone(&shared), count_rejected);
    Router::new()
        .route("/heartbeat", post(heartbeat).route_layer(count))
        .route("/queryBaseline", post(query_baseline))
        .layer(DefaultBodyLimit::max(MAX_REPORT))
        .with_state(Endpoints { shared, sender })
}

/// Counts the heartbeats that are rejected.
async fn count_rejected(State(shared): State<Arc<TunnelState>>, response: Response) -> Response {
    if !response.status().is_success() {
        shared.rejected.fetch_add(1, Ordering::Relaxed);
    }
    response
}

/// Handles `POST /heartbeat`: records the address of the base, and passes its description to the receiver of the tunnel. A base that
/// stops has the status `Deactivated` in the description.
async fn heartbeat(
    State(endpoints): State<Endpoints>,
    Extension(Peer(peer)): Extension<Peer>,
    body: Bytes,
) -> Result<&'static str, ReportRejection> {
    let (id, mut node) = parse::<BaseReport>(&body)?
        .read()
        .map_err(|error| ReportRejection(StatusCode::BAD_REQUEST, error.to_string()))?;
    let ip = node.network_info.node_ip.unwrap_or(peer);
    if ip != peer && !endpoints.shared.in_base_networks(ip) {
        let text = format!("localIP: the report comes from {peer}, not from {ip} (see base_networks)");
        return Err(ReportRejection(StatusCode::FORBIDDEN, text));
    }
    node.network_info.node_ip = Some(ip);
    let address = SocketAddr::new(ip, node.network_info.port.unwrap_or_default());
    let ends = node.metadata.status == NodeActivation::Deactivated;
    {
        // Both at once: the address may be replaced by that in the Node object.
        let mut bases = endpoints.shared.bases();
        bases.record(&id, address, Instant::now())?;
        endpoints.sender.node_discovered(&id, node)?;
    }
    debug!(base = %id, %address, ends, "a base reports");
    Ok("SUCCESS")
}

/// Handles `POST /queryBaseline` of a base that has just started: returns the modules that it is to load, or a status that makes it ask
/// again.
async fn query_baseline(
    State(endpoints): State<Endpoints>,
    Extension(Peer(peer)): Extension<Peer>,
    body: Bytes,
) -> Result<Json<Vec<Module>>, ReportRejection> {
    let metadata = parse::<BaseMetadata>(&body)?;
    let id = metadata
        .id()
        .map_err(|error| ReportRejection(StatusCode::BAD_REQUEST, format!("identity: {error}")))?;
    let address = endpoints.shared.bases().address(&id);
    // Any process may report such an address, since a base may be there and send its requests from another one.
    if !address.is_some_and(|address| endpoints.shared.in_base_networks(address.ip())) {
        endpoints.shared.bases().check(&id, peer, Instant::now())?;
    }
    let containers = endpoints.sender.query_baseline(&id, metadata.baseline_request()).await?;
    Ok(Json(Module::of_all(&containers, &id)))
}

/// Parses the body of a report. The error has the position of the mistake, and nothing of the body.
fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ReportRejection> {
    serde_json::from_slice(body).map_err(|error| ReportRejection(StatusCode::BAD_REQUEST, error.to_string()))
}

/// A report that is not accepted: the status and the reason, for the log of the base.
struct ReportRejection(StatusCode, String);

impl From<AddressClaimError> for ReportRejection {
    fn from(error: AddressClaimError) -> Self {
        let status = match error {
            AddressClaimError::Taken => StatusCode::CONFLICT,
            AddressClaimError::TooMany(_) => StatusCode::SERVICE_UNAVAILABLE,
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

impl IntoResponse for ReportRejection {
    fn into_response(self) -> Response {
        let Self(status, text) = self;
        debug!(%status, error = text, "a report of a base is rejected");
        (status, text).into_response()
    }
}
