//! The server as its users hold it: started, asked for its address, stopped.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::task::JoinHandle;

use crate::audit::RequestRecord;
use crate::connections::{Door, Socket, listen};
use crate::faults::Faults;
use crate::http::handle;
use crate::shared::Shared;

/// How a server is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// How many events it remembers. Who asks for older ones gets 410.
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
    url: String,
    shared: Arc<Shared>,
    serving: JoinHandle<()>,
}

impl ApiServer {
    /// Starts a server with an empty cluster on the present tokio runtime.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub async fn start(options: Options) -> std::io::Result<Self> {
        let (listener, at) = listen(options.listen).await?;
        let shared = Arc::new(Shared::new(options.event_log, options.bookmark_interval));
        let door = Door { listener, connections: Arc::clone(&shared.connections) };
        let router = Router::new().fallback(handle).with_state(Arc::clone(&shared));
        let serving = tokio::spawn(async move {
            // It serves until the task is ended.
            let _ = axum::serve(door, router.into_make_service_with_connect_info::<Socket>()).await;
        });
        Ok(Self { url: format!("http://{at}"), shared, serving })
    }

    /// The address: `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A kubeconfig (YAML) whose only context is this server.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: devstack\n\
             clusters:\n- name: devstack\n  cluster:\n    server: {}\n\
             users:\n- name: devstack\n  user: {{}}\n\
             contexts:\n- name: devstack\n  context:\n    cluster: devstack\n    user: devstack\n    namespace: default\n",
            self.url
        )
    }

    /// What goes wrong on purpose.
    #[must_use]
    pub fn faults(&self) -> Faults {
        Faults::new(Arc::clone(&self.shared))
    }

    /// The requests for resources so far, oldest first.
    #[must_use]
    pub fn requests(&self) -> Vec<RequestRecord> {
        self.shared.audit.all()
    }

    /// Forgets the requests so far.
    pub fn clear_requests(&self) {
        self.shared.audit.clear();
    }

    /// Ends the server: nothing is listened to any more, all connections are cut.
    pub async fn stop(mut self) {
        self.end();
        // The task was ended; that it says so is all there is to learn.
        let _ = (&mut self.serving).await;
    }

    fn end(&self) {
        self.serving.abort();
        self.shared.connections.refuse(true);
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.end();
    }
}
