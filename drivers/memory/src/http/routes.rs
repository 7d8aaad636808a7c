//! The HTTP routes of the simulated cloud.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use axum::{Json, Router};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use staffetta_driver::DriverError;

use super::cloud::{CallOrigin, ServedCloud};
use super::effects::EffectLog;
use super::method::Method;
use super::{CallBody, PlannedFault, REQUEST_ID};

/// The maximum size of a request, in bytes. A pod has at most 1.5 MB, and a pool of ten thousand members about as much.
const MAX_BODY: usize = 4 << 20;

/// The maximum length of a request id, in bytes.
const MAX_REQUEST_ID: usize = 128;

/// The maximum number of calls for which one request plans a fault.
const MAX_TIMES: usize = 100_000;

/// Serves `cloud` on `listener` until the future is dropped.
pub(super) async fn serve(listener: std::net::TcpListener, cloud: Arc<ServedCloud>) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    // Otherwise a small answer may wait for the acknowledgement of the one before.
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    axum::serve(listener, router().with_state(cloud)).await
}

/// The argument with which a handler gets the served cloud.
type Cloud = State<Arc<ServedCloud>>;

/// Returns the routes of the served cloud: the calls of drivers below `/v1`, and the routes for effects, resources and planned faults. The
/// body of a request has at most [`MAX_BODY`] bytes.
fn router() -> Router<Arc<ServedCloud>> {
    Router::new()
        .route("/livez", get(Json("ok")))
        .route("/effects", get(effects))
        .route("/ports", get(async |State(cloud): Cloud| Json(cloud.ports())))
        .route("/load_balancers", get(async |State(cloud): Cloud| Json(cloud.load_balancers())))
        .route("/public_ips", get(async |State(cloud): Cloud| Json(cloud.public_ips())))
        .route("/faults", get(planned_faults).post(inject).delete(clear_faults))
        .route("/v1/{driver}/{method}", post(call))
        .layer(DefaultBodyLimit::max(MAX_BODY))
}

/// Handles `POST /v1/DRIVER/METHOD`: executes one method of a driver on the cloud, with the fault that is planned for it. An unknown
/// method, a malformed body and a failed call have different HTTP statuses.
async fn call(
    State(cloud): Cloud,
    Path((driver, method)): Path<(String, String)>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Value>, CallFailure> {
    let path = format!("{driver}/{method}");
    let method = Method::ALL.iter().find(|method| method.path() == path).ok_or(CallFailure::UnknownMethod)?;
    let CallBody::<Value> { cluster, arguments } = read(&body)?;
    let origin = CallOrigin { method: *method, cluster, request_id: request_id(&headers)? };
    let call = cloud.read(origin, arguments).map_err(|error| CallFailure::Malformed(error.to_string()))?;
    cloud.faults.call(*method, call).await.map(Json).map_err(CallFailure::Failed)
}

/// Returns the id that the client gave the request; `None` without one. Fails if the id is too long or not text.
fn request_id(headers: &HeaderMap) -> Result<Option<String>, CallFailure> {
    let Some(id) = headers.get(REQUEST_ID) else { return Ok(None) };
    let text = id.to_str().ok().filter(|text| text.len() <= MAX_REQUEST_ID);
    let wrong =
        || CallFailure::Malformed(format!("{REQUEST_ID} is not a text of at most {MAX_REQUEST_ID} bytes"));
    text.map(|text| Some(text.to_owned())).ok_or_else(wrong)
}

/// The query parameters of a request for effects.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct EffectsQuery {
    after: u64,
}

/// Handles `GET /effects`: returns the effects after the number in the query.
async fn effects(State(cloud): Cloud, Query(query): Query<EffectsQuery>) -> Json<EffectLog> {
    Json(cloud.effects(query.after))
}

/// Handles `POST /faults`: plans a fault for the next calls of a method.
async fn inject(State(cloud): Cloud, body: Bytes) -> Result<Json<()>, CallFailure> {
    let PlannedFault { call, times, fault } = read(&body)?;
    if times > MAX_TIMES {
        return Err(CallFailure::Malformed(format!("a fault may happen {MAX_TIMES} times, not {times}")));
    }
    cloud.faults.inject(call, times, fault);
    Ok(Json(()))
}

/// Handles `GET /faults`: returns the number of calls that planned faults still wait for.
async fn planned_faults(State(cloud): Cloud) -> Json<usize> {
    Json(cloud.faults.planned())
}

/// Handles `DELETE /faults`: cancels all planned faults.
async fn clear_faults(State(cloud): Cloud) -> Json<()> {
    cloud.faults.clear();
    Json(())
}

/// Deserializes the JSON body of a request.
fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, CallFailure> {
    serde_json::from_slice(body).map_err(|error| CallFailure::Malformed(error.to_string()))
}

/// The reason why a request is not executed, or fails.
enum CallFailure {
    /// The driver returned an error.
    Failed(DriverError),
    /// The request cannot be deserialized.
    Malformed(String),
    /// The path does not name a method.
    UnknownMethod,
}

impl IntoResponse for CallFailure {
    fn into_response(self) -> Response {
        match self {
            Self::Failed(error) => (StatusCode::UNPROCESSABLE_ENTITY, Json(error)).into_response(),
            Self::Malformed(why) => {
                let plain = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
                (StatusCode::BAD_REQUEST, plain, why).into_response()
            }
            Self::UnknownMethod => StatusCode::NOT_FOUND.into_response(),
        }
    }
}
