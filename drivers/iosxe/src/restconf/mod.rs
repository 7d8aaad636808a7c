//! RESTCONF (RFC 8040): requests to one device, and what their answers mean.

mod complaint;
mod discovery;
mod exchange;
mod gate;
#[cfg(test)]
mod tests;
mod tls;

use std::collections::HashSet;
use std::fmt::Write as _;
use std::net::Ipv6Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use reqwest::{Method, StatusCode, Url, redirect};
use serde_json::Value;
use staffetta_driver::app_hosting::{DeviceSpec, Password};
use staffetta_driver::{DriverError, Reason};

use self::complaint::Complaint;
use self::gate::Gate;
use crate::model::operation::Operation;
use crate::model::path;
use crate::options::IosXeOptions;

/// The largest answer that is read, in bytes.
const MAX_ANSWER: usize = 16 << 20;

/// A way to a device: RESTCONF today.
#[async_trait]
pub(crate) trait NetworkClient: Send + Sync {
    /// A resource; none when the device has nothing there.
    async fn get(&self, path: &'static str, step: &'static str) -> Result<Option<Vec<u8>>, Fault>;

    /// Adds an application to the configuration.
    async fn configure(&self, body: &Value) -> Result<(), Fault>;

    /// Takes an application out of the configuration. One that is not there is taken out.
    async fn remove(&self, id: &str) -> Result<(), Fault>;

    /// Does a step of an application's life. The device has accepted it then, not done.
    async fn operate(&self, operation: &Operation) -> Result<(), Fault>;
}

/// Why a request did not do what it was to do.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) error: Box<DriverError>,
    /// What the device said, where it understood the request and did not want to.
    pub(crate) said: Option<String>,
}

impl From<DriverError> for Fault {
    fn from(error: DriverError) -> Self {
        Self { error: Box::new(error), said: None }
    }
}

impl From<Fault> for DriverError {
    fn from(fault: Fault) -> Self {
        *fault.error
    }
}

/// RESTCONF to one device.
pub(crate) struct Restconf {
    http: reqwest::Client,
    /// Where the device is, without a path.
    base: Url,
    username: String,
    password: Password,
    max_answer: usize,
    gate: Gate,
    /// The path of the API, once the device has told it.
    root: Mutex<Option<String>>,
    /// The resources that were there once.
    served: Mutex<HashSet<&'static str>>,
    /// Whether the device wants operations without the envelope that RFC 8040 puts around them.
    bare: AtomicBool,
}

impl Restconf {
    /// A way to the device of `spec`. It connects when it is used.
    pub(crate) fn new(spec: &DeviceSpec, options: &IosXeOptions) -> Result<Self, DriverError> {
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
            .connect_timeout(options.connect_timeout())
            .timeout(options.request_timeout());
        let config = tls::config(&spec.tls, &spec.address)?;
        let http = builder.tls_backend_preconfigured(config).build().map_err(|error| {
            DriverError::new(Reason::Refused, "make a client of the device").because(error.without_url())
        })?;
        Ok(Self {
            http,
            base,
            username: spec.username.clone(),
            password,
            max_answer: MAX_ANSWER,
            gate: Gate::default(),
            root: Mutex::default(),
            served: Mutex::default(),
            bare: AtomicBool::new(false),
        })
    }

    /// The place of a resource under the root of the API.
    async fn url(&self, path: &str) -> Result<Url, DriverError> {
        let known = self.root.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let root = if let Some(root) = known {
            root
        } else {
            let root = self.discover().await?;
            *self.root.lock().unwrap_or_else(PoisonError::into_inner) = Some(root.clone());
            root
        };
        self.base.join(&format!("{root}/{path}")).map_err(|error| {
            DriverError::new(Reason::Unavailable, "find the API of the device").because(error)
        })
    }

    /// Forgets where the API is: the device may have been replaced.
    fn forget_root(&self) {
        *self.root.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    async fn change(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        step: &'static str,
    ) -> Result<(StatusCode, Option<Complaint>), DriverError> {
        let url = self.url(path).await?;
        let (status, answer) = self.exchange(method, url, body, step).await?;
        Ok((status, (!status.is_success()).then(|| Complaint::read(status, &answer))))
    }
}

#[async_trait]
impl NetworkClient for Restconf {
    async fn get(&self, path: &'static str, step: &'static str) -> Result<Option<Vec<u8>>, Fault> {
        let url = self.url(path).await?;
        let (status, body) = self.exchange(Method::GET, url, None, step).await?;
        if status.is_success() {
            self.served.lock().unwrap_or_else(PoisonError::into_inner).insert(path);
            return Ok((!body.is_empty()).then_some(body));
        }
        let complaint = Complaint::read(status, &body);
        let served = self.served.lock().unwrap_or_else(PoisonError::into_inner).contains(path);
        if complaint.is_nothing_there() || (status == StatusCode::NOT_FOUND && body.is_empty() && served) {
            return Ok(None);
        }
        if status == StatusCode::NOT_FOUND {
            self.forget_root();
            let error = DriverError::new(Reason::Unavailable, step);
            let detail = format!("the device does not serve {path}: {complaint}");
            return Err(error.detail(detail).into());
        }
        Err(complaint.fault(step, false))
    }

    async fn configure(&self, body: &Value) -> Result<(), Fault> {
        const STEP: &str = "configure an app";
        match self.change(Method::POST, path::APPS, Some(body), STEP).await? {
            (_, None) => Ok(()),
            (_, Some(complaint)) => Err(complaint.fault(STEP, true)),
        }
    }

    async fn remove(&self, id: &str) -> Result<(), Fault> {
        const STEP: &str = "remove the configuration of an app";
        let path = format!("{}/app={}", path::APPS, encoded(id));
        match self.change(Method::DELETE, &path, None, STEP).await? {
            (_, None) => Ok(()),
            (_, Some(complaint)) if complaint.is_nothing_there() || complaint.has_tag("data-missing") => {
                Ok(())
            }
            (_, Some(complaint)) => Err(complaint.fault(STEP, true)),
        }
    }

    async fn operate(&self, operation: &Operation) -> Result<(), Fault> {
        let step = operation.step();
        let bare = self.bare.load(Ordering::Relaxed);
        let body = if bare { operation.bare_body() } else { operation.body() };
        let (_, complaint) = self.change(Method::POST, path::OPERATION, Some(&body), step).await?;
        let Some(complaint) = complaint else { return Ok(()) };
        // What was malformed was not done: the other form may be sent at once.
        if !complaint.has_tag("malformed-message") {
            return Err(complaint.fault(step, true));
        }
        let body = if bare { operation.body() } else { operation.bare_body() };
        let (_, again) = self.change(Method::POST, path::OPERATION, Some(&body), step).await?;
        match again {
            None => {
                self.bare.store(!bare, Ordering::Relaxed);
                Ok(())
            }
            Some(again) if again.has_tag("malformed-message") => Err(complaint.fault(step, true)),
            Some(again) => {
                self.bare.store(!bare, Ordering::Relaxed);
                Err(again.fault(step, true))
            }
        }
    }
}

/// A key in a path (RFC 8040, section 3.5.3).
fn encoded(key: &str) -> String {
    let mut encoded = String::with_capacity(key.len());
    for byte in key.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            encoded.push(char::from(byte));
        } else {
            write!(encoded, "%{byte:02X}").expect("a string takes whatever is written");
        }
    }
    encoded
}
