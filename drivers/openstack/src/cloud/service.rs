//! One service of a cloud.

use std::fmt;
use std::sync::Arc;

use reqwest::{Method, Url};

use super::{Call, Inner, State, page};
use crate::access::Urls;
use crate::error::{OpenStackError, Problem};
use crate::identity::Token;

/// One service of a cloud.
///
/// ```no_run
/// # async fn example(cloud: staffetta_openstack::Cloud) -> Result<(), staffetta_openstack::OpenStackError> {
/// #[derive(serde::Deserialize)]
/// struct Port {
///     id: String,
/// }
///
/// let network = cloud.network();
/// let body = serde_json::json!({ "port": { "network_id": "n1" } });
/// let port: Port = network.post("make a port", "ports").json(&body).answer_in("port").await?;
/// let down = network.get("list the ports", "ports").query("status", "DOWN").list::<Port>("ports").await?;
/// network.delete("delete a port", format!("ports/{}", port.id)).done().await
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Service {
    pub(super) cloud: Arc<Inner>,
    kind: ServiceKind,
}

/// Which service it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceKind {
    /// Neutron, at its version 2.0.
    Network,
    /// Octavia, at its version 2: paths begin below `lbaas`.
    LoadBalancer,
}

impl ServiceKind {
    /// The type, as a catalogue says it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::LoadBalancer => "load-balancer",
        }
    }

    /// How many services there are.
    pub(crate) const COUNT: usize = 2;

    /// Its place among them.
    pub(crate) fn place(self) -> usize {
        match self {
            Self::Network => 0,
            Self::LoadBalancer => 1,
        }
    }

    /// What stands between the URL of a service and its paths.
    fn version(self) -> &'static str {
        match self {
            Self::Network => "v2.0",
            Self::LoadBalancer => "v2",
        }
    }

    fn prefix(self) -> &'static str {
        match self {
            Self::Network => "",
            Self::LoadBalancer => "lbaas/",
        }
    }

    fn overridden(self, urls: &Urls) -> Option<&Url> {
        match self {
            Self::Network => urls.network.as_ref(),
            Self::LoadBalancer => urls.load_balancer.as_ref(),
        }
    }
}

impl fmt::Display for ServiceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Service {
    pub(super) fn new(cloud: Arc<Inner>, kind: ServiceKind) -> Self {
        Self { cloud, kind }
    }

    /// Which service it is.
    pub fn kind(&self) -> ServiceKind {
        self.kind
    }

    /// How many calls of it may be in flight, while it is well.
    pub(crate) fn max_concurrency(&self) -> usize {
        self.cloud.session.access().max_concurrency
    }

    /// A call that reads. `step` says what is tried, as an imperative; `path` stands below the version: `ports/p1`.
    pub fn get(&self, step: &'static str, path: impl Into<String>) -> Call<'_> {
        Call::new(self, step, Method::GET, path.into())
    }

    /// A call that makes something; made twice, there are two.
    pub fn post(&self, step: &'static str, path: impl Into<String>) -> Call<'_> {
        Call::new(self, step, Method::POST, path.into()).once()
    }

    /// A call that changes something; changed twice, it is as if changed once ([`Call::once`] says otherwise).
    pub fn put(&self, step: &'static str, path: impl Into<String>) -> Call<'_> {
        Call::new(self, step, Method::PUT, path.into())
    }

    /// A call that deletes something.
    pub fn delete(&self, step: &'static str, path: impl Into<String>) -> Call<'_> {
        Call::new(self, step, Method::DELETE, path.into())
    }

    pub(super) fn state(&self) -> &State {
        match self.kind {
            ServiceKind::Network => &self.cloud.network,
            ServiceKind::LoadBalancer => &self.cloud.load_balancer,
        }
    }

    /// The URL of a path, as the options or the catalogue have it.
    pub(super) fn url(&self, token: &Token, step: &'static str, path: &str) -> Result<Url, OpenStackError> {
        let base = self.base(token, step)?;
        Ok(page::below(&base, self.kind.version(), &format!("{}{path}", self.kind.prefix())))
    }

    /// Where the service tells which versions it has.
    pub(super) fn root(&self, token: &Token, step: &'static str) -> Result<Url, OpenStackError> {
        Ok(page::root(&self.base(token, step)?))
    }

    fn base(&self, token: &Token, step: &'static str) -> Result<Url, OpenStackError> {
        let access = self.cloud.session.access();
        if let Some(url) = self.kind.overridden(&access.urls) {
            return Ok(url.clone());
        }
        let missing = |text| OpenStackError::new(step, Problem::NoService(text));
        token.catalogue().url(self.kind.as_str(), access.interface, access.region.as_deref()).map_err(missing)
    }
}
