//! The HTTP routes of the simulated cloud.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Result;
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use axum::{Json, Router};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::cloud::ServedCloud;
use super::method::Method;
use super::{CallBody, PlannedFault, REQUEST_ID};

/// Serves `cloud` on `listener` until the future is dropped.
pub(super) async fn serve(listener: std::net::TcpListener, cloud: Arc<ServedCloud>) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    // Otherwise a small answer may wait for the acknowledgement of the one before.
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    axum::serve(listener, router().with_state(cloud)).await
}

/// The argument by which axum passes the simulated cloud to the handler of a route.
type Cloud = State<Arc<ServedCloud>>;

/// Returns the routes of the served cloud: the calls of drivers below `/v1`, and the routes for effects, resources and planned faults.
fn router() -> Router<Arc<ServedCloud>> {
    Router::new()
        .route("/livez", get(Json("ok")))
        .route("/effects", get(async |State(cloud): Cloud| Json(cloud.effects())))
        .route("/ports", get(async |State(cloud): Cloud| Json(cloud.ports())))
        .route("/load_balancers", get(async |State(cloud): Cloud| Json(cloud.load_balancers())))
        .route("/public_ips", get(async |State(cloud): Cloud| Json(cloud.public_ips())))
        .route("/faults", get(planned_faults).post(inject).delete(clear_faults))
        .route("/v1/{driver}/{method}", post(call))
}

/// Handles `POST /v1/DRIVER/METHOD`: executes one method of a driver on the cloud, with the fault that is planned for it. An unknown
/// method (404), a malformed body (400) and a failed call (422) have different HTTP statuses.
async fn call(
    State(cloud): Cloud,
    Path((driver, method)): Path<(String, String)>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Value>> {
    let path = format!("{driver}/{method}");
    let method = *Method::ALL.iter().find(|method| method.path() == path).ok_or(StatusCode::NOT_FOUND)?;
    let CallBody::<Value> { cluster, arguments } = read(&body)?;
    let request_id = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()).map(str::to_owned);
    let call = cloud.read(method, &cluster, request_id, arguments).map_err(|error| malformed(&error))?;
    let answer = cloud.faults.call(method, call).await;
    Ok(Json(answer.map_err(|error| (StatusCode::UNPROCESSABLE_ENTITY, Json(error)))?))
}

/// Handles `POST /faults`: plans a fault for the next calls of a method.
async fn inject(State(cloud): Cloud, body: Bytes) -> Result<Json<()>> {
    let PlannedFault { call, times, fault } = read(&body)?;
    cloud.faults.inject(call, times, fault);
    Ok(Json(()))
}

/// Handles `GET /faults`: returns the number of planned faults that have not happened yet.
async fn planned_faults(State(cloud): Cloud) -> Json<usize> {
    Json(cloud.faults.planned())
}

/// Handles `DELETE /faults`: cancels all planned faults.
async fn clear_faults(State(cloud): Cloud) -> Json<()> {
    cloud.faults.clear();
    Json(())
}

/// Deserializes the JSON body of a request. The error is a response with the status 400.
fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, (StatusCode, String)> {
    serde_json::from_slice(body).map_err(|error| malformed(&error))
}

/// Returns the response to a request that cannot be deserialized: the status 400 and the error.
fn malformed(error: &serde_json::Error) -> (StatusCode, String) {
    (StatusCode::BAD_REQUEST, error.to_string())
}
