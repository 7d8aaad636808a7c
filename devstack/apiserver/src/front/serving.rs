//! A listener and its connections, which are served until it is stopped or dropped.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use tokio::task::JoinHandle;

use super::connections::{Door, Socket, listen};
use super::handle::{FaultyServer, handle};
use super::{Backend, Faults, Front, RequestRecord};

/// Parts common to the embedded server and the proxy.
pub(crate) struct Serving {
    url: String,
    front: Arc<Front>,
    task: JoinHandle<()>,
}

impl Serving {
    /// Listens and lets `backend` answer.
    pub(crate) async fn start<B: Backend>(at: SocketAddr, backend: Arc<B>) -> std::io::Result<Self> {
        let (listener, at) = listen(at).await?;
        let front = Arc::new(Front::default());
        let door = Door { listener, connections: Arc::clone(&front.connections) };
        let server = Arc::new(FaultyServer { front: Arc::clone(&front), backend });
        let router = Router::new().fallback(handle::<B>).with_state(server);
        let task = tokio::spawn(async move {
            // It serves until the task is ended.
            let _ = axum::serve(door, router.into_make_service_with_connect_info::<Socket>()).await;
        });
        Ok(Self { url: format!("http://{at}"), front, task })
    }

    /// `http://ADDRESS:PORT`.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// A kubeconfig (YAML) whose only context is this address.
    pub(crate) fn kubeconfig(&self) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: devstack\n\
             clusters:\n- name: devstack\n  cluster:\n    server: {}\n\
             users:\n- name: devstack\n  user: {{}}\n\
             contexts:\n- name: devstack\n  context:\n    cluster: devstack\n    user: devstack\n    namespace: default\n",
            self.url
        )
    }

    pub(crate) fn faults(&self) -> Faults {
        Faults::new(Arc::clone(&self.front))
    }

    pub(crate) fn requests(&self) -> Vec<RequestRecord> {
        self.front.audit.all()
    }

    pub(crate) fn clear_requests(&self) {
        self.front.audit.clear();
    }

    /// Cuts all connections; new ones are served.
    pub(crate) fn cut(&self) {
        self.front.connections.cut();
    }

    /// Nothing is listened to any more, all connections are cut.
    pub(crate) async fn stop(mut self) {
        self.end();
        // The task was ended; that it says so is all there is to learn.
        let _ = (&mut self.task).await;
    }

    fn end(&self) {
        self.task.abort();
        self.front.connections.refuse(true);
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.end();
    }
}
