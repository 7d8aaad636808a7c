//! Sends spans to the collector.

use std::time::Duration;

use async_trait::async_trait;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use reqwest::{Client, redirect, retry};
use tokio::runtime::Handle;

/// The time limit of one export.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum size of a response of the collector, in bytes.
const MAX_RESPONSE: usize = 1 << 20;

/// The HTTP client of the exporter. The exporter has a thread of its own, outside of the runtime; its requests run on the runtime.
#[derive(Debug)]
pub(super) struct CollectorClient {
    http: Client,
    runtime: Handle,
}

impl CollectorClient {
    pub(super) fn new(runtime: Handle) -> Result<Self, reqwest::Error> {
        let builder = Client::builder().redirect(redirect::Policy::none()).retry(retry::never());
        // The exporter itself waits without a limit.
        let http = builder.timeout(EXPORT_TIMEOUT).build()?;
        Ok(Self { http, runtime })
    }
}

#[async_trait]
impl HttpClient for CollectorClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let http = self.http.clone();
        self.runtime.spawn(async move { send(&http, request).await }).await?
    }
}

/// Sends a request to the collector and reads the whole response. Fails if the body has more than [`MAX_RESPONSE`] bytes.
async fn send(http: &Client, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let mut response = http.execute(request.try_into()?).await?;
    let (status, headers) = (response.status(), response.headers().clone());
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > MAX_RESPONSE {
            return Err(format!("the response of the collector has more than {MAX_RESPONSE} bytes").into());
        }
        body.extend_from_slice(&chunk);
    }
    let mut response = Response::new(body.into());
    (*response.status_mut(), *response.headers_mut()) = (status, headers);
    Ok(response)
}
