//! The routes and responses of the kubelet API.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum::{Extension, Json, Router};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::KubeletWords;
use super::authorization::{Authorizer, credential};
use super::serve::{CertifiedClient, ClientAddress};
use super::stats::{UsageReport, resource_metrics, summary};
use crate::counters::{Counts, Request, RequestResult};
use crate::machine::Machine;
use crate::pod::ClusterIndex;

/// The time for which resource usage is cached. The machine is not read again within this time.
const CACHE_TIME: Duration = Duration::from_secs(5);

/// The time limit of a read of resource usage from the machine.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// The data for the responses of the kubelet API of one node.
pub(super) struct KubeletData {
    machine: Arc<Machine>,
    cluster: Arc<ClusterIndex>,
    counts: Arc<Counts>,
    words: KubeletWords,
    authorizer: Authorizer,
    /// The last report of the resource usage of the node's pods; `None` before the first one.
    usage: Mutex<Option<UsageReport>>,
}

impl KubeletData {
    /// Creates the data for the responses of the node of `machine`.
    pub(super) fn new(
        machine: Arc<Machine>,
        cluster: Arc<ClusterIndex>,
        counts: Arc<Counts>,
        words: KubeletWords,
        client: Client,
    ) -> Arc<Self> {
        let authorizer = Authorizer::new(client, machine.name.to_string());
        Arc::new(Self { machine, cluster, counts, words, authorizer, usage: Mutex::new(None) })
    }

    fn pods(&self) -> Vec<Arc<Pod>> {
        self.cluster.pods_on(&self.machine.name)
    }

    /// Returns the resource usage of the machine and its pods. A report is kept for [`CACHE_TIME`], so that frequent requests do not
    /// load the machine. Fails if the machine is down, does not answer within [`READ_TIMEOUT`], or does not report its usage.
    async fn usage(&self) -> Result<UsageReport, String> {
        let mut last = self.usage.lock().await;
        if let Some(last) = last.as_ref().filter(|last| last.at.elapsed() < CACHE_TIME) {
            return Ok(last.clone());
        }
        let down = || "the machine behind this node cannot be reached".to_owned();
        let back_end =
            self.machine.back_end().filter(|_| self.machine.view().reach.is_up()).ok_or_else(down)?;
        let read = tokio::time::timeout(READ_TIMEOUT, back_end.usage()).await.map_err(|_| down())?;
        let read =
            read.map_err(|error| format!("the machine behind this node does not report it: {error}"))?;
        let report = UsageReport::new(read.into(), last.as_ref(), Instant::now(), Timestamp::now());
        *last = Some(report.clone());
        Ok(report)
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
        ("/metrics/resource", Request::Metrics, get(metrics)),
    ] {
        let guard = Guard { data: Arc::clone(&data), request, shows_data: true };
        router = router.route(path, handler.route_layer(from_fn_with_state(guard, authorize)));
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
        let guard = Guard { data: Arc::clone(&data), request, shows_data: false };
        router = router.route(path, any(answer).layer(from_fn_with_state(guard, authorize)));
    }
    router.with_state(data)
}

/// The input of [`authorize`] for one route: the kind of its requests, and the need of a credential.
#[derive(Clone)]
struct Guard {
    data: Arc<KubeletData>,
    request: Request,
    /// `false` if the response is the same for all clients. Then it needs no credential, so that `kubectl` shows it
    /// without a client CA in the configuration.
    shows_data: bool,
}

/// Passes a request on if the API server permits access to its path to the user of the client certificate or bearer token. Otherwise
/// the request is denied and counted. Without a credential, only routes are served whose response is the same for all clients.
async fn authorize(
    State(Guard { data, request, shows_data }): State<Guard>,
    Extension(CertifiedClient(certified)): Extension<CertifiedClient>,
    Extension(ClientAddress(peer)): Extension<ClientAddress>,
    call: axum::extract::Request,
    next: Next,
) -> Response {
    let decision = match credential(certified, call.headers()) {
        Some(credential) => {
            data.authorizer.authorize(credential, peer, call.method(), call.uri().path()).await
        }
        None if shows_data => {
            let option = data.words.client_authority;
            let text = format!(
                "a client certificate signed by the CA in `{option}`, or a bearer token, is required\n"
            );
            Err((StatusCode::UNAUTHORIZED, text))
        }
        None => Ok(()),
    };
    let Err(denial) = decision else { return next.run(call).await };
    let failed = denial.0 == StatusCode::INTERNAL_SERVER_ERROR;
    data.counts.request(request, if failed { RequestResult::Failure } else { RequestResult::Denied });
    denial.into_response()
}

/// Answers `/pods`: the pods of the node, as a kubelet does.
async fn pods(State(data): State<Arc<KubeletData>>) -> Response {
    data.counts.request(Request::Pods, RequestResult::Success);
    let pods: Vec<Value> = data.pods().iter().map(|pod| json!(**pod)).collect();
    Json(json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods })).into_response()
}

/// Answers `/stats/summary`: the resource usage of the node and its containers.
async fn stats(State(data): State<Arc<KubeletData>>) -> Response {
    match data.usage().await {
        Ok(report) => {
            data.counts.request(Request::Stats, RequestResult::Success);
            Json(summary(&data.machine.name, &data.pods(), &report.pods, Timestamp::now())).into_response()
        }
        Err(error) => {
            data.counts.request(Request::Stats, RequestResult::Failure);
            (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response()
        }
    }
}

/// Answers `/metrics/resource`, which the metrics server reads.
async fn metrics(State(data): State<Arc<KubeletData>>) -> Response {
    let report = data.usage().await;
    let result = if report.is_ok() { RequestResult::Success } else { RequestResult::Failure };
    data.counts.request(Request::Metrics, result);
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], resource_metrics(report.ok().as_ref()))
        .into_response()
}
