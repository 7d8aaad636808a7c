//! The client: one pool of connections and one token for all services of a cloud.

mod call;
mod connection;
mod exchange;
mod limiter;
mod page;
mod service;
mod text;
mod version;
mod window;

use std::sync::Arc;

use staffetta_driver::RequestObserver;
use tracing::warn;

use self::limiter::Limiter;
use crate::access::Access;
use crate::cached::Cached;
use crate::identity::Session;

pub use self::call::Call;
pub use self::connection::CloudError;
pub(crate) use self::exchange::{Answer, Exchange, Http};
pub use self::service::{Service, ServiceKind};
pub(crate) use self::text::{or_default, well_formed};

/// A cloud. Its clones share their connections, their token and their limits.
#[derive(Clone, Debug)]
pub struct Cloud(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    http: Http,
    session: Arc<Session>,
    network: State,
    load_balancer: State,
    timeout: std::time::Duration,
}

/// What is known of one service.
#[derive(Debug)]
struct State {
    limiter: Limiter,
    extensions: Cached<(), Arc<std::collections::HashSet<String>>>,
    version: Cached<(), (u32, u32)>,
}

impl State {
    fn new(max_concurrency: usize) -> Self {
        Self {
            limiter: Limiter::new(max_concurrency),
            extensions: Cached::new(version::FRESH),
            version: Cached::new(version::FRESH),
        }
    }
}

impl Cloud {
    /// The cloud that is reached so. Nothing is sent before it is used; `observer` learns of each request.
    pub fn new(access: Access, observer: Arc<dyn RequestObserver>) -> Result<Self, CloudError> {
        if access.tls.insecure {
            warn!(
                "TLS VERIFICATION IS OFF for OpenStack: whoever stands in between can read the password and change \
                 what is done; give `neutron.cafile` instead"
            );
        }
        let http = Http::new(connection::client(&access.tls)?, observer);
        let (timeout, max) = (access.timeout, access.max_concurrency);
        let session = Arc::new(Session::new(http.clone(), access));
        let state = || State::new(max);
        Ok(Self(Arc::new(Inner { http, session, network: state(), load_balancer: state(), timeout })))
    }

    /// Neutron.
    pub fn network(&self) -> Service {
        Service::new(Arc::clone(&self.0), ServiceKind::Network)
    }

    /// Octavia.
    pub fn load_balancer(&self) -> Service {
        Service::new(Arc::clone(&self.0), ServiceKind::LoadBalancer)
    }
}
