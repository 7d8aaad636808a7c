//! A proxy that injects faults into the requests to a real API server, with the front of the embedded server.

mod upstream;

use std::net::Ipv4Addr;
use std::sync::Arc;

use kube::config::Kubeconfig;

use crate::front::{Faults, RequestRecord, Serving};
use upstream::Upstream;

/// A proxy on loopback, over plain HTTP, in front of the API server of a kubeconfig. It ends when it is dropped.
///
/// A client of the proxy acts as the user of that kubeconfig. A request with an `Authorization` header keeps its own header, so
/// that a test can act as a service account. The proxy is for tests only: it does not authenticate clients, reads requests
/// completely before it forwards them (but not responses), and does not support upgraded connections (exec, attach). While the
/// upstream does not respond, connections of clients are cut.
pub struct Proxy {
    serving: Serving,
    upstream: Arc<Upstream>,
}

/// Errors of starting a proxy.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// The socket could not be opened.
    #[error("cannot listen on loopback")]
    Listen(#[source] std::io::Error),
    /// The kubeconfig has no usable context, or names files that cannot be read.
    #[error("the kubeconfig of the upstream cannot be used")]
    Kubeconfig(#[source] kube::config::KubeconfigError),
    /// The certificates or credentials cannot be used.
    #[error("no client of the upstream can be made")]
    Client(#[source] Box<kube::Error>),
}

impl Proxy {
    /// Starts a proxy on the current tokio runtime. The upstream need not be reachable yet.
    ///
    /// # Errors
    /// See [`ProxyError`].
    pub async fn start(kubeconfig: Kubeconfig) -> Result<Self, ProxyError> {
        let upstream = Arc::new(Upstream::new(kubeconfig).await?);
        let loopback = (Ipv4Addr::LOCALHOST, 0).into();
        let serving = Serving::start(loopback, Arc::clone(&upstream)).await.map_err(ProxyError::Listen)?;
        Ok(Self { serving, upstream })
    }

    /// Replaces the API server behind the proxy, whose address stays the same. All connections are cut, because they lead to the
    /// previous server.
    ///
    /// # Errors
    /// The kubeconfig cannot be used; the previous server stays.
    pub async fn set_upstream(&self, kubeconfig: Kubeconfig) -> Result<(), ProxyError> {
        self.upstream.replace(kubeconfig).await?;
        self.serving.cut();
        Ok(())
    }

    /// Returns the URL of the proxy: `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> &str {
        self.serving.url()
    }

    /// Returns a kubeconfig (YAML) whose only context is this proxy.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        self.serving.kubeconfig()
    }

    /// Returns the handle that injects faults.
    #[must_use]
    pub fn faults(&self) -> Faults {
        self.serving.faults()
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

    /// Stops the proxy: it no longer listens, and all connections are cut.
    pub async fn stop(self) {
        self.serving.stop().await;
    }
}
