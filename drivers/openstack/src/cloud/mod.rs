//! The client of a cloud: calls of its services with one token and limited concurrency.

mod call;
mod limiter;
mod page;
mod service;
mod window;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use staffetta_driver::RequestObserver;
use tracing::warn;

use self::limiter::Limiter;
use self::service::TTL;
use crate::access::Access;
use crate::cached::Cached;
use crate::http::{CloudError, HttpClient};
use crate::identity::KeystoneSession;
use crate::service_kind::ServiceKind;

pub use self::call::ApiCall;
pub use self::service::Service;

/// A cloud. Clones share connections, token and limits.
#[derive(Clone, Debug)]
pub struct Cloud(Arc<CloudClient>);

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
    extensions: Cached<(), Arc<HashSet<String>>>,
    version: Cached<(), (u32, u32)>,
}

impl Cloud {
    /// Creates the client of a cloud, without a request. `observer` is called after each later request.
    pub fn new(access: Access, observer: Arc<dyn RequestObserver>) -> Result<Self, CloudError> {
        if access.tls.insecure {
            warn!(
                "TLS VERIFICATION IS OFF for OpenStack: the password can be read, and requests changed, on the network; \
                 give `neutron.cafile` instead"
            );
        }
        let http = HttpClient::new(&access.tls, observer)?;
        let (timeout, max) = (access.timeout, access.max_concurrency);
        let session = Arc::new(KeystoneSession::new(http.clone(), access));
        let services = [(); ServiceKind::COUNT].map(|()| ServiceState {
            limiter: Limiter::new(max),
            extensions: Cached::new(TTL),
            version: Cached::new(TTL),
        });
        Ok(Self(Arc::new(CloudClient { http, session, services, timeout })))
    }

    /// Returns the Neutron service.
    pub fn network(&self) -> Service {
        Service { cloud: Arc::clone(&self.0), kind: ServiceKind::Network }
    }

    /// Returns the Octavia service.
    pub fn load_balancer(&self) -> Service {
        Service { cloud: Arc::clone(&self.0), kind: ServiceKind::LoadBalancer }
    }
}
