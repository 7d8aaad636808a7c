//! The client of a simulated cloud in another process. Its connections are shared by the drivers and by the methods that inspect the cloud.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use reqwest::redirect;
use serde::Serialize;
use serde::de::DeserializeOwned;
use staffetta_driver::{DriverError, LoadBalancer, Owned, PublicIp};

use super::effects::EffectLog;
use super::method::{CallStep, Method};
use super::options::{SimulatedOptions, SimulatedOptionsError};
use super::{Fault, PlannedFault};
use crate::MemoryPort;

/// The maximum size of a response, in bytes: enough for a list of a hundred thousand VIFs.
const MAX_RESPONSE: usize = 128 << 20;

/// A client of the simulated cloud. Clones share connections and request ids.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    /// The URL of the server, without a slash at its end.
    pub(super) url: Arc<str>,
    /// The time limit of a call.
    pub(super) timeout: Duration,
    /// The maximum size of a response, in bytes.
    pub(super) max_response: usize,
    /// A random number that distinguishes the request ids of this client. The randomness is that of the standard library's hash maps.
    id: u64,
    /// The number of request ids that were used.
    requests: Arc<AtomicU64>,
}

impl Client {
    /// Creates a client for the URL in the options. It connects at the first call. Invalid options are an error.
    pub fn new(options: &SimulatedOptions) -> Result<Self, SimulatedOptionsError> {
        let (url, timeout) = options.checked()?;
        // reqwest panics without a provider; an error means that there is one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            .no_proxy() // the server is local
            .redirect(redirect::Policy::none())
            .retry(reqwest::retry::never()) // the caller decides what to repeat
            .timeout(timeout)
            .build()
            .map_err(SimulatedOptionsError::Client)?;
        let id = RandomState::new().hash_one(std::process::id());
        let requests = Arc::default();
        Ok(Self { http, url: url.into(), timeout, max_response: MAX_RESPONSE, id, requests })
    }

    /// Returns `Ok` if the server responds, and an error otherwise.
    pub async fn check(&self) -> Result<(), DriverError> {
        self.get::<String>("livez", "reach the simulated cloud").await.map(drop)
    }

    /// Returns the log of the resources that calls have created, changed and released so far.
    pub async fn effects(&self) -> Result<EffectLog, DriverError> {
        self.get("effects", "read the effects").await
    }

    /// Returns the existing ports of all clusters.
    pub async fn ports(&self) -> Result<Vec<MemoryPort>, DriverError> {
        self.get("ports", "list the ports").await
    }

    /// Returns the existing load balancers of all clusters.
    pub async fn load_balancers(&self) -> Result<Vec<Owned<LoadBalancer>>, DriverError> {
        self.get("load_balancers", "list the load balancers").await
    }

    /// Returns the public addresses that are in use or belong to a user, of all clusters.
    pub async fn public_ips(&self) -> Result<Vec<Owned<PublicIp>>, DriverError> {
        self.get("public_ips", "list the public addresses").await
    }

    /// Plans `fault` for the next `times` calls of `method` that have no planned fault yet.
    pub async fn inject(&self, method: Method, times: usize, fault: &Fault) -> Result<(), DriverError> {
        let planned = PlannedFault { call: method, times, fault: fault.clone() };
        self.post("faults", &planned, CallStep::Changes("plan a fault")).await
    }

    /// Returns the number of planned faults that have not happened yet.
    pub async fn planned_faults(&self) -> Result<usize, DriverError> {
        self.get("faults", "count the planned faults").await
    }

    /// Cancels the planned faults that have not happened yet.
    pub async fn clear_faults(&self) -> Result<(), DriverError> {
        let request = self.http.delete(format!("{}/faults", self.url));
        self.exchange(request, CallStep::Changes("cancel the faults")).await
    }

    /// Posts `body` as JSON to `path`, and returns the response. Errors name the operation `step`.
    pub(super) async fn post<A: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        step: CallStep,
    ) -> Result<A, DriverError> {
        self.exchange(self.http.post(format!("{}/{path}", self.url)).json(body), step).await
    }

    /// Gets the JSON resource at `path`. Errors name the operation `step`.
    async fn get<A: DeserializeOwned>(&self, path: &str, step: &'static str) -> Result<A, DriverError> {
        self.exchange(self.http.get(format!("{}/{path}", self.url)), CallStep::Reads(step)).await
    }

    /// Returns the id of the next request: the random number of the client in hexadecimal, `-`, and the number of the request.
    pub(super) fn next_request_id(&self) -> String {
        let number = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        format!("{:016x}-{number}", self.id)
    }
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
