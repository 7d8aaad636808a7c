//! What a kubelet API answers.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum::{Extension, Json, Router};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use staffetta_driver::virtual_node::PodUsage;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::serve::Known;
use super::stats::summary;
use super::{Figureless, KubeletWords};
use crate::figures::{Answered, Counts, Request};
use crate::machine::Machine;
use crate::pod::ClusterIndex;

/// How long figures are used: however many ask, a machine is asked once in this time.
const KEPT: Duration = Duration::from_secs(5);

/// How long a machine may take to tell its figures.
const PATIENCE: Duration = Duration::from_secs(10);

/// What one node answers from.
pub(super) struct Desk {
    machine: Arc<Machine>,
    cluster: Arc<ClusterIndex>,
    counts: Arc<Counts>,
    words: KubeletWords,
    usage: Mutex<Option<(Instant, Arc<[PodUsage]>)>>,
}

impl Desk {
    pub(super) fn new(
        machine: Arc<Machine>,
        cluster: Arc<ClusterIndex>,
        counts: Arc<Counts>,
        words: KubeletWords,
    ) -> Arc<Self> {
        Arc::new(Self { machine, cluster, counts, words, usage: Mutex::new(None) })
    }

    fn pods(&self) -> Vec<Arc<Pod>> {
        self.cluster.pods_on(self.machine.name())
    }

    async fn usage(&self) -> Result<Arc<[PodUsage]>, Figureless> {
        let mut last = self.usage.lock().await;
        if let Some((at, usage)) = &*last
            && at.elapsed() < KEPT
        {
            return Ok(Arc::clone(usage));
        }
        let back_end = self.machine.back_end().filter(|_| self.machine.is_up()).ok_or(Figureless::Down)?;
        let read = tokio::time::timeout(PATIENCE, back_end.usage()).await.map_err(|_| Figureless::Down)?;
        let usage: Arc<[PodUsage]> = read?.into();
        *last = Some((Instant::now(), Arc::clone(&usage)));
        Ok(usage)
    }
}

/// The routes of a kubelet that API servers and collectors of figures know.
pub(super) fn router(desk: Arc<Desk>) -> Router {
    let mut router = Router::new()
        .route("/healthz", get(async || "ok"))
        .route("/pods", get(pods))
        .route("/runningpods/", get(pods))
        .route("/stats/summary", get(stats));
    for (path, request, what) in [
        ("/containerLogs/{*rest}", Request::Logs, "logs"),
        ("/exec/{*rest}", Request::Exec, "exec"),
        ("/run/{*rest}", Request::Exec, "exec"),
        ("/attach/{*rest}", Request::Attach, "attach"),
        ("/portForward/{*rest}", Request::PortForward, "port-forward"),
    ] {
        let answer = async move |State(desk): State<Arc<Desk>>| {
            desk.counts.asked(request, Answered::Unsupported);
            not_supported(what, desk.words)
        };
        router = router.route(path, any(answer));
    }
    router.with_state(desk)
}

/// The sentence that `kubectl` shows.
fn not_supported(what: &str, words: KubeletWords) -> Response {
    let machine = words.machine;
    let text = format!("{what} is not supported by this {machine}: it runs the pod, and lets nobody else in");
    (StatusCode::NOT_IMPLEMENTED, text).into_response()
}

async fn pods(State(desk): State<Arc<Desk>>, Extension(known): Extension<Known>) -> Response {
    if !known.0 {
        desk.counts.asked(Request::Pods, Answered::Denied);
        return refusal(desk.words);
    }
    desk.counts.asked(Request::Pods, Answered::Success);
    let pods: Vec<Value> = desk.pods().iter().map(|pod| json!(**pod)).collect();
    Json(json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods })).into_response()
}

async fn stats(State(desk): State<Arc<Desk>>, Extension(known): Extension<Known>) -> Response {
    if !known.0 {
        desk.counts.asked(Request::Stats, Answered::Denied);
        return refusal(desk.words);
    }
    match desk.usage().await {
        Ok(usage) => {
            desk.counts.asked(Request::Stats, Answered::Success);
            Json(summary(desk.machine.name(), &desk.pods(), &usage, Timestamp::now())).into_response()
        }
        Err(error) => {
            desk.counts.asked(Request::Stats, Answered::Failure);
            (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response()
        }
    }
}

/// What those are told who showed no certificate.
fn refusal(words: KubeletWords) -> Response {
    let option = words.client_authority;
    let text = format!("show a client certificate that the authority of `{option}` signed\n");
    (StatusCode::UNAUTHORIZED, text).into_response()
}
