//! The routes and responses of the kubelet API.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum::{Extension, Json, Router};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use staffetta_driver::virtual_node::PodUsage;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::serve::ClientVerified;
use super::stats::summary;
use super::{KubeletWords, UsageUnavailable};
use crate::counters::{Counts, Request, RequestResult};
use crate::machine::Machine;
use crate::pod::ClusterIndex;

/// The time for which resource usage is cached. The machine is not read again within this time.
const KEPT: Duration = Duration::from_secs(5);

/// The time limit of a read of resource usage from the machine.
const PATIENCE: Duration = Duration::from_secs(10);

/// The data for the responses of the kubelet API of one node.
pub(super) struct KubeletData {
    machine: Arc<Machine>,
    cluster: Arc<ClusterIndex>,
    counts: Arc<Counts>,
    words: KubeletWords,
    usage: Mutex<Option<(Instant, Arc<[PodUsage]>)>>,
}

impl KubeletData {
    pub(super) fn new(
        machine: Arc<Machine>,
        cluster: Arc<ClusterIndex>,
        counts: Arc<Counts>,
        words: KubeletWords,
    ) -> Arc<Self> {
        Arc::new(Self { machine, cluster, counts, words, usage: Mutex::new(None) })
    }

    fn pods(&self) -> Vec<Arc<Pod>> {
        self.cluster.pods_on(&self.machine.name)
    }

    async fn usage(&self) -> Result<Arc<[PodUsage]>, UsageUnavailable> {
        let mut last = self.usage.lock().await;
        if let Some((at, usage)) = &*last
            && at.elapsed() < KEPT
        {
            return Ok(Arc::clone(usage));
        }
        let back_end = self
            .machine
            .back_end()
            .filter(|_| self.machine.view().reach.is_up())
            .ok_or(UsageUnavailable::Down)?;
        let read =
            tokio::time::timeout(PATIENCE, back_end.usage()).await.map_err(|_| UsageUnavailable::Down)?;
        let usage: Arc<[PodUsage]> = read?.into();
        *last = Some((Instant::now(), Arc::clone(&usage)));
        Ok(usage)
    }
}

/// Builds the router with the routes of a kubelet that API servers and metrics collectors use. The routes for logs,
/// exec, attach and port forwarding respond with the status 501.
pub(super) fn router(data: Arc<KubeletData>) -> Router {
    let mut router = Router::new().route("/healthz", get(async || "ok"));
    for (path, request, handler) in [
        ("/pods", Request::Pods, get(pods)),
        ("/runningpods/", Request::Pods, get(pods)),
        ("/stats/summary", Request::Stats, get(stats)),
    ] {
        // Only clients with a certificate may read the data of pods.
        let verify = move |State(data): State<Arc<KubeletData>>,
                           Extension(known): Extension<ClientVerified>,
                           call: axum::extract::Request,
                           next: Next| async move {
            if known.0 {
                return next.run(call).await;
            }
            data.counts.request(request, RequestResult::Denied);
            let option = data.words.client_authority;
            let text = format!("a client certificate signed by the CA in `{option}` is required\n");
            (StatusCode::UNAUTHORIZED, text).into_response()
        };
        router = router.route(path, handler.route_layer(from_fn_with_state(Arc::clone(&data), verify)));
    }
    for (path, request, what) in [
        ("/containerLogs/{*rest}", Request::Logs, "logs"),
        ("/exec/{*rest}", Request::Exec, "exec"),
        ("/run/{*rest}", Request::Exec, "exec"),
        ("/attach/{*rest}", Request::Attach, "attach"),
        ("/portForward/{*rest}", Request::PortForward, "port-forward"),
    ] {
        let answer = async move |State(data): State<Arc<KubeletData>>| {
            data.counts.request(request, RequestResult::Unsupported);
            let machine = data.words.machine;
            let text = format!("{what} is not supported by this {machine}");
            (StatusCode::NOT_IMPLEMENTED, text)
        };
        router = router.route(path, any(answer));
    }
    router.with_state(data)
}

async fn pods(State(data): State<Arc<KubeletData>>) -> Response {
    data.counts.request(Request::Pods, RequestResult::Success);
    let pods: Vec<Value> = data.pods().iter().map(|pod| json!(**pod)).collect();
    Json(json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods })).into_response()
}

async fn stats(State(data): State<Arc<KubeletData>>) -> Response {
    match data.usage().await {
        Ok(usage) => {
            data.counts.request(Request::Stats, RequestResult::Success);
            Json(summary(&data.machine.name, &data.pods(), &usage, Timestamp::now())).into_response()
        }
        Err(error) => {
            data.counts.request(Request::Stats, RequestResult::Failure);
            (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response()
        }
    }
}
