//! The public handle of the server.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response};

use crate::front::{Asked, Backend, Faults, RequestRecord, Serving};
use crate::http::Embedded;
use crate::shared::Shared;

/// Options of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// The listen address; port 0 chooses a free port.
    pub listen: SocketAddr,
    /// The number of events that are kept. A watch from an older revision gets 410.
    pub event_log: usize,
    /// The time between two bookmarks of a watch.
    pub bookmark_interval: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            event_log: 20_000,
            bookmark_interval: Duration::from_secs(60),
        }
    }
}

/// A running server. It ends when it is dropped.
pub struct ApiServer {
    shared: Arc<Shared>,
    serving: Serving,
}

impl ApiServer {
    /// Starts a server with an empty cluster on the current tokio runtime.
    ///
    /// # Errors
    /// The server cannot listen on the address.
    pub async fn start(options: Options) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::new(options.event_log, options.bookmark_interval));
        let embedded = Arc::new(Embedded(Arc::clone(&shared)));
        Ok(Self { shared, serving: Serving::start(options.listen, embedded).await? })
    }

    /// Returns the URL of the server: `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> &str {
        self.serving.url()
    }

    /// Returns a kubeconfig (YAML) whose only context is this server.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        self.serving.kubeconfig()
    }

    /// Returns the handle that injects faults.
    #[must_use]
    pub fn faults(&self) -> Faults {
        self.serving.faults()
    }

    /// Drops all events so far: a watch or a list from an earlier revision gets 410.
    pub fn trim_event_log(&self) {
        self.shared.with(|cluster| cluster.store.trim());
    }

    /// Returns the recorded requests for resources, oldest first.
    #[must_use]
    pub fn requests(&self) -> Vec<RequestRecord> {
        self.serving.requests()
    }

    /// Deletes the record of requests.
    pub fn clear_requests(&self) {
        self.serving.clear_requests();
    }

    /// Stops the server: it no longer listens, and all connections are cut.
    pub async fn stop(self) {
        self.serving.stop().await;
    }
}

/// A server without a listener, for clients in the same process. It injects no faults and records no requests.
#[derive(Clone)]
pub struct InProcess(Arc<Embedded>);

impl InProcess {
    /// Creates a server with an empty cluster. Its listen address is not used.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        let shared = Shared::new(options.event_log, options.bookmark_interval);
        Self(Arc::new(Embedded(Arc::new(shared))))
    }

    /// Executes a request and returns its response. That of a watch ends when its time is over, or when it is dropped.
    pub async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let asked = Asked::of(request.method(), request.uri());
        self.0.answer(&asked, request).await.expect("the embedded cluster answers each request")
    }

    /// Drops all events so far: a watch or a list from an earlier revision gets 410.
    pub fn trim_event_log(&self) {
        self.0.0.with(|cluster| cluster.store.trim());
    }
}
