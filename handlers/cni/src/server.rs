//! The server of the plugin: HTTP on a Unix socket, or on an address of the loopback interface.

mod peer;

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde::de::DeserializeOwned;
use staffetta_cni::error::{CniError, Code};
use staffetta_cni::message::MAX_MESSAGE;
use tokio::net::{TcpListener, UnixListener};

use self::peer::RootListener;
use crate::daemon::{CniDaemon, run_to_completion};
use crate::options::Listen;

/// The error of a server that cannot listen at its address, or that stopped because of a failure.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen at {address} (`cni_daemon.listen`)")]
pub struct ServeError {
    address: String,
    #[source]
    source: io::Error,
}

/// A server whose socket listens already, but that does not answer requests yet.
pub struct CniServer {
    listener: SocketListener,
    address: String,
}

/// The socket of a [`CniServer`]. Both kinds are unreachable from other machines.
enum SocketListener {
    /// A Unix socket, which only root may use.
    Unix(UnixListener),
    /// A TCP socket on the loopback interface, which only root may use, too.
    Tcp(TcpListener),
}

impl CniServer {
    /// Listens at `listen`. A Unix socket gets the mode 0600 before it has its name, so that nobody but root ever reaches it. It takes the
    /// place of the socket of an earlier daemon.
    pub async fn bind(listen: &Listen) -> Result<Self, ServeError> {
        let address = String::from(listen.clone());
        let listener = match listen {
            Listen::Unix(path) => bind_unix(path).map(SocketListener::Unix),
            Listen::Tcp(socket) => TcpListener::bind(socket).await.map(SocketListener::Tcp),
        };
        match listener {
            Ok(listener) => Ok(Self { listener, address }),
            Err(source) => Err(ServeError { address, source }),
        }
    }

    /// Answers requests until `stop` completes and the requests in progress are answered. Those that wait for a VIF or a port are then
    /// answered at once: for as long as they waited, the next daemon could not start.
    pub async fn serve(
        self,
        daemon: Arc<CniDaemon>,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), ServeError> {
        let router = router(Arc::clone(&daemon));
        let stop = async move {
            stop.await;
            daemon.stop();
        };
        let served = match self.listener {
            SocketListener::Unix(listener) => {
                axum::serve(listener, router).with_graceful_shutdown(stop).await
            }
            SocketListener::Tcp(listener) => {
                axum::serve(RootListener(listener), router).with_graceful_shutdown(stop).await
            }
        };
        served.map_err(|source| ServeError { address: self.address, source })
    }
}

/// Binds a Unix socket that only the user of the daemon may use. It is bound under a temporary name first: nobody can connect to `path`
/// before the mode is 0600, and a socket of an earlier process is replaced atomically.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    let _ = fs::remove_file(&temporary);
    let listener = UnixListener::bind(&temporary)?;
    fs::set_permissions(&temporary, Permissions::from_mode(0o600))?;
    fs::rename(&temporary, path)?;
    Ok(listener)
}

/// Returns the routes of the commands of the CNI plugin. The first two have the paths of Kuryr's daemon.
fn router(daemon: Arc<CniDaemon>) -> Router {
    Router::new()
        .route("/addNetwork", post(add))
        .route("/delNetwork", post(delete))
        .route("/checkNetwork", post(check))
        .route("/status", post(status))
        .route("/gc", post(collect))
        .layer(DefaultBodyLimit::max(MAX_MESSAGE))
        .with_state(daemon)
}

/// The axum extractor that passes the daemon to a route.
type Daemon = State<Arc<CniDaemon>>;

/// Binds a pod (`ADD`). The command stops waiting when the plugin is killed, because the runtime then unbinds the pod; a change that
/// has begun is completed.
async fn add(State(daemon): Daemon, body: Bytes) -> Response {
    match observed(&daemon, "add", body, async |daemon, request| daemon.add(&request).await).await {
        Ok(vif) => (StatusCode::ACCEPTED, Json(vif)).into_response(),
        Err(error) => failure(error),
    }
}

/// Unbinds a pod (`DEL`).
async fn delete(State(daemon): Daemon, body: Bytes) -> Response {
    let delete =
        |daemon: Arc<CniDaemon>, request| run_to_completion(async move { daemon.delete(&request).await });
    empty(observed(&daemon, "del", body, delete).await)
}

/// Checks the interfaces of a pod (`CHECK`).
async fn check(State(daemon): Daemon, body: Bytes) -> Response {
    let check =
        |daemon: Arc<CniDaemon>, request| run_to_completion(async move { daemon.check(&request).await });
    empty(observed(&daemon, "check", body, check).await)
}

/// Reports an error if `ADD` cannot succeed at present (`STATUS`).
async fn status(State(daemon): Daemon) -> Response {
    empty(daemon.status())
}

/// Unbinds the pods without a sandbox (`GC`).
async fn collect(State(daemon): Daemon, body: Bytes) -> Response {
    let collect =
        |daemon: Arc<CniDaemon>, valid| run_to_completion(async move { daemon.collect(&valid).await });
    empty(observed(&daemon, "gc", body, collect).await)
}

/// Parses the request, runs the command, and reports its duration and error code to the observer of commands, for metrics.
async fn observed<R: DeserializeOwned, T, F: Future<Output = Result<T, CniError>>>(
    daemon: &Arc<CniDaemon>,
    command: &'static str,
    body: Bytes,
    run: impl FnOnce(Arc<CniDaemon>, R) -> F,
) -> Result<T, CniError> {
    let start = Instant::now();
    let result = match serde_json::from_slice(&body) {
        Ok(request) => run(Arc::clone(daemon), request).await,
        Err(error) => Err(CniError::new(Code::Decode, "the request is malformed").details(error.to_string())),
    };
    let code = result.as_ref().err().map_or("none", |error| class(error).0);
    daemon.observed(command, code, start.elapsed());
    result
}

/// Returns the HTTP response to a command that returns nothing: a response without a body or, after an error, that of [`failure`].
fn empty(result: Result<(), CniError>) -> Response {
    match result {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(error) => failure(error),
    }
}

/// Returns the HTTP response for an error.
fn failure(error: CniError) -> Response {
    (class(&error).1, Json(error)).into_response()
}

/// Returns the name of the code of an error, for metrics, and the HTTP status, which is that of Kuryr's daemon.
fn class(error: &CniError) -> (&'static str, StatusCode) {
    match error.code {
        3 => ("unknown_container", StatusCode::GONE),
        4 | 6 | 7 => ("bad_request", StatusCode::BAD_REQUEST),
        11 => ("try_again_later", StatusCode::GATEWAY_TIMEOUT),
        50 => ("unavailable", StatusCode::SERVICE_UNAVAILABLE),
        _ => ("failed", StatusCode::INTERNAL_SERVER_ERROR),
    }
}

#[cfg(test)]
mod tests;
