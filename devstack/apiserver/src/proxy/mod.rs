//! The way to a real API server, broken on purpose: the front of the embedded server, and behind it an upstream.

mod upstream;

use std::net::Ipv4Addr;
use std::sync::Arc;

use kube::config::Kubeconfig;

use crate::front::{Faults, RequestRecord, Serving};
use upstream::Upstream;

/// A proxy on loopback, over plain HTTP, before the API server of a kubeconfig. It ends when it is dropped.
///
/// Whoever reaches it acts as the user of that kubeconfig; a request with an `Authorization` header of its own goes on
/// with that alone, so that a test can be a service account. It is for tests: nobody is asked for anything, requests
/// are read whole before they go on (answers are not), and what needs an upgraded connection (exec, attach) is not
/// served. While the upstream does not answer, clients find their connections cut.
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
    /// Starts a proxy on the present tokio runtime. The upstream need not be there yet.
    ///
    /// # Errors
    /// See [`ProxyError`].
    pub async fn start(kubeconfig: Kubeconfig) -> Result<Self, ProxyError> {
        let upstream = Arc::new(Upstream::new(kubeconfig).await?);
        let loopback = (Ipv4Addr::LOCALHOST, 0).into();
        let serving = Serving::start(loopback, Arc::clone(&upstream)).await.map_err(ProxyError::Listen)?;
        Ok(Self { serving, upstream })
    }

    /// Puts another API server behind the same address. All connections are cut: they led to the old one.
    ///
    /// # Errors
    /// The kubeconfig cannot be used; all stays as it was.
    pub async fn set_upstream(&self, kubeconfig: Kubeconfig) -> Result<(), ProxyError> {
        self.upstream.replace(kubeconfig).await?;
        self.serving.cut();
        Ok(())
    }

    /// The address: `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> &str {
        self.serving.url()
    }

    /// A kubeconfig (YAML) whose only context is this proxy.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        self.serving.kubeconfig()
    }

    /// The handle of the injected faults.
    #[must_use]
    pub fn faults(&self) -> Faults {
        self.serving.faults()
    }

    /// The requests for resources so far, oldest first.
    #[must_use]
    pub fn requests(&self) -> Vec<RequestRecord> {
        self.serving.requests()
    }

    /// Forgets the requests so far.
    pub fn clear_requests(&self) {
        self.serving.clear_requests();
    }

    /// Ends the proxy: nothing is listened to any more, all connections are cut.
    pub async fn stop(self) {
        self.serving.stop().await;
    }
}
