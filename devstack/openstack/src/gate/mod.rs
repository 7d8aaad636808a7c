//! A way to the services on which calls can be looked at, held back, refused or lost.

mod fault;
mod pass;
mod tags;

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use http::{Method, StatusCode};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

use crate::api::Api;
use fault::Plan;
pub use fault::{Fault, Match};

/// A reverse proxy on loopback: `/identity`, `/network` and `/load-balancer` lead to the services, and the catalogue that
/// passes through it names it in their place, so that who logs in by it stays with it. It ends when it is dropped; the
/// services go on with what they have begun.
pub struct Gate {
    url: String,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

/// A call that passed, or failed to.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The method.
    pub method: Method,
    /// `/network/v2.0/ports?name=web`.
    pub path_and_query: String,
    /// The arrival time.
    pub came: Instant,
    /// The time and status of the answer; `None` without an answer.
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

    /// The next `times` calls that match meet this fault. Of several that match, the oldest comes first.
    pub fn inject(&self, calls: Match, times: usize, fault: Fault) {
        self.shared.plan.add(calls, times, fault);
    }

    /// Forgets the faults that have not happened yet.
    pub fn clear(&self) {
        self.shared.plan.clear();
    }

    /// The number of injected faults that have not occurred yet.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.shared.plan.pending()
    }

    /// From now on Neutron seems to lack the tags extension, or to have it.
    pub fn miss_tags(&self, missing: bool) {
        self.shared.tags_missing.store(missing, Ordering::Relaxed);
    }

    /// From now on every connection is cut, or none.
    pub fn refuse(&self, refuses: bool) {
        self.shared.refuses.store(refuses, Ordering::Relaxed);
    }

    /// The calls so far, in the order in which they came.
    #[must_use]
    pub fn seen(&self) -> Vec<Seen> {
        lock(&self.shared.seen).clone()
    }

    /// The number of matching calls so far.
    #[must_use]
    pub fn count(&self, calls: &Match) -> usize {
        lock(&self.shared.seen).iter().filter(|seen| calls.takes(&seen.method, &seen.path_and_query)).count()
    }

    /// The number of calls in progress, whether or not the client still waits.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.shared.under_way.load(Ordering::Relaxed)
    }

    /// The token of who asked Neutron last.
    #[must_use]
    pub fn token(&self) -> Option<String> {
        lock(&self.shared.token).clone()
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
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
