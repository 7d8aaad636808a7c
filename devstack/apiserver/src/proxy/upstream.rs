//! A real API server behind the front.

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::response::Response;
use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, HOST, HeaderMap, HeaderName, TE, TRAILER, TRANSFER_ENCODING,
    UPGRADE,
};
use kube::config::{AuthInfo, Config, KubeConfigOptions, Kubeconfig};
use parking_lot::RwLock;

use super::ProxyError;
use crate::front::{Asked, Backend, answer};
use crate::status::Status;

/// The largest body that is sent on. A real server takes no more than 3 MiB and says so itself.
const BODY_BYTES: usize = 16 * 1024 * 1024;

/// The headers that concern one connection only (RFC 9110, section 7.6.1).
const HOP_BY_HOP: [HeaderName; 6] =
    [CONNECTION, HeaderName::from_static("keep-alive"), TE, TRAILER, TRANSFER_ENCODING, UPGRADE];

/// The API server to which requests go on.
pub(super) struct Upstream(RwLock<Clients>);

#[derive(Clone)]
struct Clients {
    /// With the credentials of the kubeconfig.
    configured: kube::Client,
    /// With none: what the request brings along is who asks.
    anonymous: kube::Client,
}

impl Clients {
    async fn new(kubeconfig: Kubeconfig) -> Result<Self, ProxyError> {
        let options = KubeConfigOptions::default();
        let mut config =
            Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(ProxyError::Kubeconfig)?;
        config.default_retry = false; // what goes wrong here is for the client to see
        config.read_timeout = None;
        config.write_timeout = None;
        let mut nobody = config.clone();
        nobody.auth_info = AuthInfo::default();
        let client = |config| kube::Client::try_from(config).map_err(|e| ProxyError::Client(Box::new(e)));
        Ok(Self { configured: client(config)?, anonymous: client(nobody)? })
    }
}

impl Upstream {
    pub(super) async fn new(kubeconfig: Kubeconfig) -> Result<Self, ProxyError> {
        Ok(Self(RwLock::new(Clients::new(kubeconfig).await?)))
    }

    /// Later requests go to this server.
    pub(super) async fn replace(&self, kubeconfig: Kubeconfig) -> Result<(), ProxyError> {
        let clients = Clients::new(kubeconfig).await?;
        *self.0.write() = clients;
        Ok(())
    }

    fn clients(&self) -> Clients {
        self.0.read().clone()
    }
}

impl Backend for Upstream {
    async fn answer(&self, _: &Result<Asked, Status>, request: Request) -> Option<Response> {
        let (mut parts, body) = request.into_parts();
        let clients = self.clients();
        let client =
            if parts.headers.contains_key(AUTHORIZATION) { clients.anonymous } else { clients.configured };
        without(&mut parts.headers, &HOP_BY_HOP);
        // The name of this proxy is not that of the server, and faults want to read the answers.
        without(&mut parts.headers, &[HOST, ACCEPT_ENCODING]);
        parts.extensions.clear();
        let Ok(body) = to_bytes(body, BODY_BYTES).await else {
            return Some(answer::refusal(&Status::of_code(413, "Request entity too large")));
        };
        let request = Request::from_parts(parts, kube::client::Body::from(body));
        let (mut parts, body) = client.send(request).await.ok()?.into_parts();
        without(&mut parts.headers, &HOP_BY_HOP);
        Some(Response::from_parts(parts, Body::new(body)))
    }
}

fn without(headers: &mut HeaderMap, names: &[HeaderName]) {
    for name in names {
        headers.remove(name);
    }
}
