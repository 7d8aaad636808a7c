//! A proxy in plain HTTP before a real API server, so that the program as it ships can be looked at from between.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::serve::ListenerExt;
use http::StatusCode;
use http::header::{CONNECTION, HOST, TRANSFER_ENCODING};
use kube::Client;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// The largest body that is sent on. A real server takes no more than 3 MiB.
const BODY_BYTES: usize = 4 * 1024 * 1024;

/// A proxy on loopback. It ends when it is dropped.
pub(crate) struct Proxy {
    folder: TempDir,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Starts one that sends each request on by this client, as whom the client is.
    pub(crate) async fn start(client: Client) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port is free");
        let address = listener.local_addr().expect("it listens");
        // An event is not to wait until the one before is acknowledged.
        let listener = listener.tap_io(|socket| socket.set_nodelay(true).expect("it is a TCP socket"));
        let router = Router::new().fallback(forward).with_state(client);
        let task = tokio::spawn(async move {
            // It serves until the task is ended.
            let _ = axum::serve(listener, router).await;
        });
        let proxy = Self { folder: tempfile::tempdir().expect("a folder can be made"), task };
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

/// Requests are read whole, answers go on as they come.
async fn forward(State(client): State<Client>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    // The name of this proxy, and what concerns the connection to it.
    for header in [HOST, CONNECTION, TRANSFER_ENCODING] {
        parts.headers.remove(header);
    }
    parts.extensions.clear();
    let Ok(body) = to_bytes(body, BODY_BYTES).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    match client.send(Request::from_parts(parts, body.into())).await {
        Ok(answer) => {
            let (mut parts, body) = answer.into_parts();
            parts.headers.remove(CONNECTION);
            parts.headers.remove(TRANSFER_ENCODING);
            Response::from_parts(parts, Body::new(body))
        }
        Err(_) => StatusCode::BAD_GATEWAY.into_response(),
    }
}
