//! A proxy in plain HTTP before a real API server, which records when a pod is first delivered and when its patches are answered.

#![allow(dead_code, reason = "each benchmark takes what it needs")]

use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::serve::ListenerExt;
use http::header::{CONNECTION, HOST, TRANSFER_ENCODING};
use http::{Method, StatusCode, Uri};
use http_body_util::BodyExt;
use kube::Client;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::cluster;
use crate::wait::{complete, until};

/// The largest body that is forwarded. A real server accepts at most 3 MiB.
const BODY_BYTES: usize = 4 * 1024 * 1024;

/// A proxy on loopback. It ends when it is dropped.
pub(crate) struct Proxy {
    /// The requests and events that passed.
    pub(crate) passed: Passed,
    folder: TempDir,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Starts one that forwards each request with the credentials of this kubeconfig.
    pub(crate) async fn start(kubeconfig: &Path) -> Self {
        let client = cluster::client(kubeconfig).await;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port is free");
        let address = listener.local_addr().expect("it listens");
        // An event is not to wait until the one before is acknowledged.
        let listener = listener.tap_io(|socket| socket.set_nodelay(true).expect("it is a TCP socket"));
        let passed = Passed::default();
        let router = Router::new().fallback(forward).with_state((client, passed.clone()));
        let task = tokio::spawn(async move {
            // It serves until the task is aborted.
            let _ = axum::serve(listener, router).await;
        });
        let proxy = Self { passed, folder: tempfile::tempdir().expect("a folder can be made"), task };
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: proxy\n\
             clusters: [{{ name: proxy, cluster: {{ server: 'http://{address}' }} }}]\n\
             users: [{{ name: proxy, user: {{}} }}]\n\
             contexts: [{{ name: proxy, context: {{ cluster: proxy, user: proxy, namespace: default }} }}]\n"
        );
        std::fs::write(proxy.kubeconfig(), text).expect("the folder can be written");
        proxy
    }

    /// The path of a kubeconfig whose only context is this proxy.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Forwards a request when it is complete, and its answer as it arrives.
async fn forward(State((client, passed)): State<(Client, Passed)>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let (method, uri) = (parts.method.clone(), parts.uri.clone());
    // The name of this proxy, and what concerns the connection to it.
    for header in [HOST, CONNECTION, TRANSFER_ENCODING] {
        parts.headers.remove(header);
    }
    parts.extensions.clear();
    let Ok(body) = to_bytes(body, BODY_BYTES).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let Ok(answer) = client.send(Request::from_parts(parts, body.into())).await else {
        return StatusCode::BAD_GATEWAY.into_response();
    };
    passed.record(&method, &uri, answer.status());
    let (mut parts, body) = answer.into_parts();
    parts.headers.remove(CONNECTION);
    parts.headers.remove(TRANSFER_ENCODING);
    let body = body.map_frame(move |frame| {
        if let Some(data) = frame.data_ref() {
            passed.record_events(data);
        }
        frame
    });
    Response::from_parts(parts, Body::new(body))
}

/// The requests and events that passed a proxy, by pod name.
#[derive(Clone, Default)]
pub(crate) struct Passed(Arc<Mutex<Records>>);

#[derive(Default)]
struct Records {
    delivered: HashMap<String, Instant>,
    acknowledged: HashMap<String, Vec<Instant>>,
    others: usize,
    /// The paths of kinds that were listed once.
    listed: HashSet<String>,
}

impl Passed {
    fn record(&self, method: &Method, uri: &Uri, status: StatusCode) {
        let pod = uri.path().rsplit_once("/pods/").map(|(_, name)| name);
        let parameter =
            |name: &str| uri.query().is_some_and(|query| query.split('&').any(|part| part.starts_with(name)));
        let mut records = self.records();
        match (method, pod) {
            (&Method::PATCH, Some(name)) if status.is_success() => {
                records.acknowledged.entry(name.to_owned()).or_default().push(Instant::now());
            }
            // Watches, the further pages of lists, and what is read for the first time: the list of a kind, discovery.
            (&Method::GET, None) if parameter("watch=") || parameter("continue=") => {}
            (&Method::GET, None) if records.listed.insert(uri.path().to_owned()) => {}
            _ => records.others += 1,
        }
    }

    /// The first name in each event of a pod is its own.
    fn record_events(&self, data: &[u8]) {
        const ADDED: &[u8] = br#"{"type":"ADDED","object":"#;
        const NAME: &[u8] = br#""name":""#;
        for line in data.split(|&byte| byte == b'\n').filter(|line| line.starts_with(ADDED)) {
            let Some(at) = line.windows(NAME.len()).position(|window| window == NAME) else { continue };
            let name = line[at + NAME.len()..].split(|&byte| byte == b'"').next().unwrap_or_default();
            let name = String::from_utf8_lossy(name).into_owned();
            self.records().delivered.entry(name).or_insert_with(Instant::now);
        }
    }

    /// Waits until each of these pods was patched so often.
    pub(crate) async fn until_patched(&self, names: &[String], times: usize) {
        until(Duration::from_millis(10), async || {
            let records = self.records();
            let patched =
                |name: &&String| records.acknowledged.get(*name).is_some_and(|at| at.len() >= times);
            complete(names.iter().filter(patched).count(), names.len(), "pods were patched")
        })
        .await;
    }

    /// The time of the first event of a pod.
    pub(crate) fn delivered(&self, name: &str) -> Instant {
        self.records().delivered.get(name).copied().expect("the pod was delivered")
    }

    /// The times at which patches of a pod were answered.
    pub(crate) fn acknowledged(&self, name: &str) -> Vec<Instant> {
        self.records().acknowledged.get(name).cloned().unwrap_or_default()
    }

    /// The number of requests other than watches, patches of pods and first lists of a kind.
    pub(crate) fn others(&self) -> usize {
        self.records().others
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
