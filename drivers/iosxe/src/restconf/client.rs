//! The RESTCONF client of one device: its address, credentials and connection pool.

use std::collections::HashSet;
use std::net::Ipv6Addr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::{Url, redirect};
use staffetta_driver::app_hosting::{DeviceSpec, Password};
use staffetta_driver::{DriverError, Fence, Reason};

use super::gate::Gate;
use super::tls;
use crate::options::{IosXeOptions, milliseconds};

/// The maximum size of a response body, in bytes.
const MAX_ANSWER: usize = 16 << 20;

/// The RESTCONF client of one device.
pub(crate) struct Restconf {
    /// The HTTP client with the TLS options of the device.
    pub(super) http: reqwest::Client,
    /// The URL of the device, without a path.
    pub(super) base: Url,
    /// The name of the account on the device.
    pub(super) username: String,
    /// The password of the account.
    pub(super) password: Password,
    /// The time limit of a request that only reads.
    pub(super) read_timeout: Duration,
    /// The maximum size of a response body, in bytes.
    pub(super) max_answer: usize,
    /// The fence that stops requests when this process is no longer the leader.
    pub(super) fence: Fence,
    /// The gate that makes requests fail at once for a time after a failure.
    pub(super) gate: Gate,
    /// The path of the API root; `None` until it is discovered.
    pub(super) root: Mutex<Option<String>>,
    /// The paths of the resources that the device has returned at least once. An empty 404 for one of them means that it is empty.
    pub(super) served: Mutex<HashSet<&'static str>>,
    /// `true` if the device does not support the `fine` query of a [`RestconfResource`](crate::model::resource::RestconfResource).
    pub(super) coarse: AtomicBool,
    /// `true` if the device expects the input of operations without the envelope of RFC 8040.
    pub(super) bare_input: AtomicBool,
}

impl Restconf {
    /// Creates a client for the device of `spec`, without a connection. Returns an error if the address, the
    /// credentials or the TLS options are missing or invalid.
    pub(crate) fn new(spec: &DeviceSpec, options: &IosXeOptions, fence: Fence) -> Result<Self, DriverError> {
        let refused = |field: &str, why: &str| {
            DriverError::new(Reason::Refused, "make a client of the device").detail(format!("{field}: {why}"))
        };
        if spec.username.is_empty() {
            return Err(refused("username", "it is missing"));
        }
        let password = spec.password.clone().ok_or_else(|| refused("password", "it is missing"))?;
        let scheme = if spec.tls.enabled { "https" } else { "http" };
        let host = match spec.address.parse::<Ipv6Addr>() {
            Ok(address) => format!("[{address}]"),
            Err(_) => spec.address.clone(),
        };
        let base = Url::parse(&format!("{scheme}://{host}:{}/", spec.management_port()))
            .ok()
            .filter(|base| base.path() == "/" && base.username().is_empty() && base.query().is_none())
            .filter(|base| !spec.address.is_empty() && base.fragment().is_none())
            .ok_or_else(|| refused("address", "it is neither a name nor an address"))?;
        let builder = reqwest::Client::builder()
            .no_proxy() // a device is near, and its password concerns nobody else
            .redirect(redirect::Policy::none())
            .retry(reqwest::retry::never()) // whoever asks repeats
            .pool_max_idle_per_host(1)
            .connect_timeout(milliseconds(options.connect_timeout_ms))
            .timeout(milliseconds(options.request_timeout_ms));
        let config = tls::config(&spec.tls)?;
        let http = builder.tls_backend_preconfigured(config).build().map_err(|error| {
            DriverError::new(Reason::Refused, "make a client of the device").because(error.without_url())
        })?;
        Ok(Self {
            http,
            base,
            username: spec.username.clone(),
            password,
            read_timeout: milliseconds(options.read_timeout_ms),
            max_answer: MAX_ANSWER,
            fence,
            gate: Gate::default(),
            root: Mutex::default(),
            served: Mutex::default(),
            coarse: AtomicBool::new(false),
            bare_input: AtomicBool::new(false),
        })
    }

    /// Returns the URL of a resource below the API root, which is discovered first if necessary.
    pub(super) async fn url(&self, path: &str) -> Result<Url, DriverError> {
        let known = self.root.lock().clone();
        let root = if let Some(root) = known {
            root
        } else {
            let root = self.discover().await?;
            *self.root.lock() = Some(root.clone());
            root
        };
        // A path that is joined may name another host, and the password goes to none.
        let mut url = self.base.clone();
        url.set_path(&format!("{root}/{path}"));
        Ok(url)
    }

    /// Makes the next request discover the API root again, because the device may have been replaced.
    pub(super) fn forget_root(&self) {
        *self.root.lock() = None;
    }
}
