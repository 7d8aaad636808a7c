//! The control API: access to the devices of a site for other processes, over HTTP, with the functions of [`Device`].

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::runtime::Handle;

use super::device::Device;
use crate::control::{DeviceAddress, Injection, PlannedInstalls, Reboot};
use crate::fault::Reachability;

type Devices = Arc<Mutex<Vec<Device>>>;

/// Listens and serves for ever.
pub(super) fn serve(listen: SocketAddr, devices: Devices, handle: &Handle) -> io::Result<SocketAddr> {
    let listener = std::net::TcpListener::bind(listen)
        .map_err(|error| io::Error::new(error.kind(), format!("cannot listen on {listen}: {error}")))?;
    listener.set_nonblocking(true)?;
    let at = listener.local_addr()?;
    let entered = handle.enter();
    let listener = TcpListener::from_std(listener)?;
    drop(entered);
    let router = Router::new()
        .route("/devices", get(list))
        .route("/devices/{name}/apps", get(apps))
        .route("/devices/{name}/ledger", get(ledger))
        .route("/devices/{name}/counts", get(counts))
        .route("/devices/{name}/faults", post(inject).delete(clear))
        .route("/devices/{name}/installs", post(installs))
        .route("/devices/{name}/reachability", post(reach))
        .route("/devices/{name}/reboot", post(reboot))
        .with_state(devices);
    handle.spawn(async move {
        // An error would be that of the listener, which axum outlives.
        let _ = axum::serve(listener, router).await;
    });
    Ok(at)
}

/// There is no device of that name.
struct Unknown(String);

impl IntoResponse for Unknown {
    fn into_response(self) -> Response {
        (StatusCode::NOT_FOUND, format!("there is no device named {}", self.0)).into_response()
    }
}

fn find(devices: &Devices, name: &str) -> Result<Device, Unknown> {
    let devices = devices.lock();
    devices.iter().find(|device| device.name() == name).cloned().ok_or_else(|| Unknown(name.to_owned()))
}

async fn list(State(devices): State<Devices>) -> Response {
    let devices = devices.lock();
    let address = |device: &Device| DeviceAddress { name: device.name().to_owned(), url: device.url() };
    Json(devices.iter().map(address).collect::<Vec<_>>()).into_response()
}

async fn apps(State(devices): State<Devices>, Path(name): Path<String>) -> Result<Response, Unknown> {
    Ok(Json(find(&devices, &name)?.apps()).into_response())
}

/// The start of a page of the ledger.
#[derive(Deserialize)]
struct From {
    #[serde(default)]
    after: u64,
}

async fn ledger(
    State(devices): State<Devices>,
    Path(name): Path<String>,
    Query(from): Query<From>,
) -> Result<Response, Unknown> {
    Ok(Json(find(&devices, &name)?.entries(from.after)).into_response())
}

async fn counts(State(devices): State<Devices>, Path(name): Path<String>) -> Result<Response, Unknown> {
    Ok(Json(find(&devices, &name)?.counts()).into_response())
}

async fn inject(
    State(devices): State<Devices>,
    Path(name): Path<String>,
    Json(injection): Json<Injection>,
) -> Result<StatusCode, Unknown> {
    find(&devices, &name)?.inject(injection.requests, injection.times, injection.fault);
    Ok(StatusCode::NO_CONTENT)
}

async fn clear(State(devices): State<Devices>, Path(name): Path<String>) -> Result<StatusCode, Unknown> {
    find(&devices, &name)?.clear_faults();
    Ok(StatusCode::NO_CONTENT)
}

async fn installs(
    State(devices): State<Devices>,
    Path(name): Path<String>,
    Json(planned): Json<PlannedInstalls>,
) -> Result<StatusCode, Unknown> {
    find(&devices, &name)?.plan_installs(&planned.app, planned.times, planned.install);
    Ok(StatusCode::NO_CONTENT)
}

async fn reach(
    State(devices): State<Devices>,
    Path(name): Path<String>,
    Json(reachability): Json<Reachability>,
) -> Result<StatusCode, Unknown> {
    find(&devices, &name)?.reach(reachability);
    Ok(StatusCode::NO_CONTENT)
}

async fn reboot(
    State(devices): State<Devices>,
    Path(name): Path<String>,
    Json(reboot): Json<Reboot>,
) -> Result<StatusCode, Unknown> {
    find(&devices, &name)?.reboot(reboot.kept, reboot.down);
    Ok(StatusCode::NO_CONTENT)
}
