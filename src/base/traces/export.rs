//! Sends spans to the OpenTelemetry collector.

use std::time::Duration;

use async_trait::async_trait;
use http_body_util::{BodyExt, Limited};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use reqwest::{Body, Client, redirect, retry};
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
        let response = async move {
            let response: Response<Body> = http.execute(request.try_into()?).await?.into();
            let (parts, body) = response.into_parts();
            let body = Limited::new(body, MAX_RESPONSE).collect().await;
            let body = body.map_err(|error| format!("cannot read the response of the collector: {error}"))?;
            Ok(Response::from_parts(parts, body.to_bytes()))
        };
        self.runtime.spawn(response).await?
    }
}
