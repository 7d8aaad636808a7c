//! A reverse proxy in front of the services, which records requests and injects faults.

mod fault;
mod pass;
mod tags;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use http::{Method, StatusCode};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::{Mutex, MutexGuard};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

use crate::api::Api;
use fault::Plan;
pub use fault::{Fault, Match};

/// A reverse proxy on loopback: `/identity`, `/network` and `/load-balancer` lead to the services. In the service catalogue, the
/// proxy replaces the addresses of the services by its own, so that a client that logs in through it keeps using it. It ends when
/// it is dropped; the services continue the requests that they have begun.
pub struct Gate {
    url: String,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

/// A request that arrived at the proxy.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The method.
    pub method: Method,
    /// The path and query: `/network/v2.0/ports?name=web`.
    pub path_and_query: String,
    /// The arrival time.
    pub came: Instant,
    /// The time and status of the response; `None` without a response.
    pub answered: Option<(Instant, StatusCode)>,
}

struct Shared {
    /// The names of the services in paths, and where they are.
    services: [(&'static str, String); 3],
    http: reqwest::Client,
    plan: Plan,
    seen: Mutex<Vec<Seen>>,
    /// The token of who asked Neutron last.
    token: Mutex<Option<String>>,
    tags_missing: AtomicBool,
    refuses: AtomicBool,
    /// The number of calls in progress.
    under_way: AtomicUsize,
}

impl Gate {
    pub(crate) async fn open(api: &Api) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("loopback has a free port");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        let services = [
            ("/identity", api.keystone.clone()),
            ("/network", api.neutron.clone()),
            ("/load-balancer", api.octavia.clone()),
        ];
        let shared = Arc::new(Shared {
            services,
            http: reqwest::Client::builder()
                .no_proxy()
                .build()
                .expect("a client of plain HTTP needs nothing"),
            plan: Plan::default(),
            seen: Mutex::default(),
            token: Mutex::default(),
            tags_missing: AtomicBool::new(false),
            refuses: AtomicBool::new(false),
            under_way: AtomicUsize::new(0),
        });
        let task = tokio::spawn(serve(listener, url.clone(), Arc::clone(&shared)));
        Self { url, shared, task }
    }

    /// Keystone without its version, by this way.
    pub(crate) fn keystone(&self) -> String {
        format!("{}/identity", self.url)
    }

    /// Injects `fault` into the next `times` matching requests. If several faults match a request, the oldest applies.
    pub fn inject(&self, calls: Match, times: usize, fault: Fault) {
        self.shared.plan.add(calls, times, fault);
    }

    /// Removes the faults that have not occurred yet.
    pub fn clear(&self) {
        self.shared.plan.clear();
    }

    /// Returns the number of injected faults that have not occurred yet.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.shared.plan.pending()
    }

    /// Hides the tags extension of Neutron, or shows it again.
    pub fn miss_tags(&self, missing: bool) {
        self.shared.tags_missing.store(missing, Ordering::Relaxed);
    }

    /// Cuts every connection from now on, or accepts connections again.
    pub fn refuse(&self, refuses: bool) {
        self.shared.refuses.store(refuses, Ordering::Relaxed);
    }

    /// Returns the requests so far, in the order of their arrival.
    #[must_use]
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().clone()
    }

    /// Returns the number of matching requests so far.
    #[must_use]
    pub fn count(&self, calls: &Match) -> usize {
        self.shared.seen.lock().iter().filter(|seen| calls.takes(&seen.method, &seen.path_and_query)).count()
    }

    /// Returns the number of requests in progress, including those for which no client waits any longer.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.shared.under_way.load(Ordering::Relaxed)
    }

    /// Returns the token of the latest request to Neutron.
    #[must_use]
    pub fn token(&self) -> Option<String> {
        self.shared.token.lock().clone()
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Serves until its task is ended, and its connections with it.
async fn serve(listener: TcpListener, url: String, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        if shared.refuses.load(Ordering::Relaxed) {
            continue;
        }
        // A socket that refuses is slower.
        drop(stream.set_nodelay(true));
        let (url, shared) = (url.clone(), Arc::clone(&shared));
        connections.spawn(async move {
            let service = service_fn(|request| pass::pass(&shared, &url, request));
            // An error is a connection that was cut, by us or by the other side.
            drop(
                hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await,
            );
        });
        while connections.try_join_next().is_some() {}
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}
