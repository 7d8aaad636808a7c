//! The client of a cloud. Its calls share one token and limit their concurrency.

mod call;
mod limiter;
mod page;
mod quotas;
mod service;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use staffetta_driver::{Fence, RequestObserver};
use tracing::warn;

use self::limiter::Limiter;
use self::service::TTL;
use crate::access::Access;
use crate::cached::Cached;
use crate::http::{CloudError, HttpClient};
use crate::identity::KeystoneSession;
use crate::projects::Projects;
use crate::service_kind::ServiceKind;

pub use self::call::ApiCall;
pub use self::quotas::Quota;
pub use self::service::Service;

/// The maximum length of a request body in bytes that services accept by default (`max_request_body_size` of oslo.middleware).
const DEFAULT_BODY_LIMIT: usize = 112 * 1024;

/// The client of a cloud. Clones share connections, token and limits.
#[derive(Clone, Debug)]
pub struct Cloud {
    client: Arc<CloudClient>,
    projects: Projects,
}

/// The shared state of the clones of a [`Cloud`].
#[derive(Debug)]
struct CloudClient {
    http: HttpClient,
    session: Arc<KeystoneSession>,
    services: [ServiceState; ServiceKind::COUNT],
    timeout: Duration,
}

/// The limiter and the cached capabilities of one service.
#[derive(Debug)]
struct ServiceState {
    limiter: Limiter,
    /// The maximum length of a request body in bytes: the default, or half the length of the shortest body that the service has refused.
    body_limit: AtomicUsize,
    extensions: Cached<(), Arc<HashSet<String>>>,
    version: Cached<(), (u32, u32)>,
}

impl Cloud {
    /// Creates the client of a cloud. Resources in all projects of the cloud may belong to the Kubernetes cluster;
    /// [`in_projects`](Self::in_projects) restricts that. No request is sent before the first call. `observer` is called after each
    /// request. Fails if the certificates of `access` cannot be read or are invalid.
    pub fn new(access: Access, observer: Arc<dyn RequestObserver>) -> Result<Self, CloudError> {
        Self::fenced(access, observer, Fence::default())
    }

    /// Creates the client of a cloud like [`new`](Self::new), which sends requests only while `fence` says that this process is the leader.
    pub fn fenced(
        access: Access,
        observer: Arc<dyn RequestObserver>,
        fence: Fence,
    ) -> Result<Self, CloudError> {
        if access.tls.insecure {
            warn!(
                "TLS VERIFICATION IS OFF for OpenStack: the password can be read, and requests changed, on the network; \
                 give `neutron.cafile` instead"
            );
        }
        let http = HttpClient::new(&access.tls, observer, fence)?;
        let (timeout, max) = (access.timeout, access.max_concurrency);
        let session = Arc::new(KeystoneSession::new(http.clone(), access));
        let services = [(); ServiceKind::COUNT].map(|()| ServiceState {
            limiter: Limiter::new(max),
            body_limit: AtomicUsize::new(DEFAULT_BODY_LIMIT),
            extensions: Cached::new(TTL),
            version: Cached::new(TTL),
        });
        let client = Arc::new(CloudClient { http, session, services, timeout });
        Ok(Self { client, projects: Projects::default() })
    }

    /// Returns the same client with the restriction that only resources in these projects may belong to the Kubernetes cluster.
    #[must_use]
    pub fn in_projects(&self, projects: Projects) -> Self {
        Self { client: Arc::clone(&self.client), projects }
    }

    /// Returns the client of the service `kind`.
    fn service(&self, kind: ServiceKind) -> Service {
        Service { cloud: Arc::clone(&self.client), projects: self.projects.clone(), kind }
    }

    /// Returns the client of Neutron.
    pub fn network(&self) -> Service {
        self.service(ServiceKind::Network)
    }

    /// Returns the client of Octavia.
    pub fn load_balancer(&self) -> Service {
        self.service(ServiceKind::LoadBalancer)
    }
}
