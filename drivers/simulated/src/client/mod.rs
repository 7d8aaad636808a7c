//! The client: one pool of connections, from which come the drivers and the looks into the network.

mod driver;
mod exchange;
mod inspect;
mod options;
mod request_ids;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::HeaderValue;
use reqwest::redirect;
use staffetta_driver::{ClusterId, DriverError};

use self::request_ids::RequestIds;
use crate::method::Method;
use crate::wire::{Call, Envelope};

pub use self::driver::SimulatedDriver;
pub use self::options::{BadOptions, SimulatedOptions};

/// The largest answer: a list of a hundred thousand VIFs.
const MAX_ANSWER: usize = 128 << 20;

/// A client of the simulated network. Its clones share their connections.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    /// The address, without a slash at its end.
    url: Arc<str>,
    timeout: Duration,
    max_answer: usize,
    request_ids: Arc<RequestIds>,
}

impl Client {
    /// A client for the network of the options. It connects when it is used.
    pub fn new(options: &SimulatedOptions) -> Result<Self, BadOptions> {
        let (url, timeout) = options.checked()?;
        // Where other drivers speak TLS, every client wants a provider; an error means that there is one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            .no_proxy() // the network is near, and what is said to it concerns nobody else
            .redirect(redirect::Policy::none())
            .retry(reqwest::retry::never()) // the caller repeats, and only what may be repeated
            .timeout(timeout)
            .build()
            .map_err(BadOptions::Client)?;
        let request_ids = Arc::new(RequestIds::new());
        Ok(Self { http, url: url.into(), timeout, max_answer: MAX_ANSWER, request_ids })
    }

    /// The drivers of the cluster with that name.
    pub fn driver(&self, cluster: ClusterId) -> SimulatedDriver {
        SimulatedDriver::new(self.clone(), cluster)
    }

    /// Calls a method on behalf of `cluster`.
    async fn call<C: Call>(
        &self,
        cluster: &ClusterId,
        method: Method,
        arguments: C,
    ) -> Result<C::Answer, DriverError> {
        let envelope = Envelope { cluster: Cow::Borrowed(cluster), arguments };
        let request = self.http.post(format!("{}/v1/{method}", self.url)).json(&envelope);
        self.exchange(request, method.step()).await
    }
}

/// The header value of a request's id.
fn header(request_id: &str) -> HeaderValue {
    HeaderValue::from_str(request_id).expect("an id is made of digits, letters and hyphens")
}
