//! The request to the admin server.

use std::time::Duration;

use reqwest::{Client, StatusCode, Url};
use tower::BoxError;

use crate::state::{Query, StateSnapshot};

/// The time limit for the connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The time limit for the whole response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// The reason why the request to the admin server failed.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum RequestError {
    /// The operating system or the TLS library cannot create a client.
    #[error("cannot create an HTTP client")]
    Client(#[source] BoxError),
    /// No server responds at the address.
    #[error("no controller is reachable at {url}; pass --admin, or run this command in the leader's pod")]
    Unreachable {
        /// The URL.
        url: Url,
        /// The cause.
        #[source]
        source: reqwest::Error,
    },
    /// The server rejected the query, with this message.
    #[error("{0}")]
    Rejected(String),
    /// The server returned an unexpected status code.
    #[error("{url} returned {code}; it is not the admin server of this version of staffetta")]
    Code {
        /// The URL.
        url: Url,
        /// The status code.
        code: StatusCode,
    },
    /// The body of the response is not the expected JSON document.
    #[error("cannot decode the response of {url}; the controller may be another version of staffetta")]
    Decode {
        /// The URL.
        url: Url,
        /// The cause.
        #[source]
        source: reqwest::Error,
    },
}

/// Requests the state of the controller at `url`. `query` selects the objects.
pub(super) fn request(url: Url, query: &Query) -> Result<StateSnapshot, RequestError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| RequestError::Client(error.into()))?;
    runtime.block_on(send(url, query))
}

async fn send(url: Url, query: &Query) -> Result<StateSnapshot, RequestError> {
    // The client needs a provider even without TLS. An error means that one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // A proxy for external traffic cannot reach a port on loopback.
    let client = Client::builder().no_proxy().connect_timeout(CONNECT_TIMEOUT).timeout(RESPONSE_TIMEOUT);
    let client = client.build().map_err(|error| RequestError::Client(error.into()))?;
    let result = client.get(url.clone()).query(query).send().await;
    // The message contains the URL already.
    let unreachable =
        |source: reqwest::Error| RequestError::Unreachable { url: url.clone(), source: source.without_url() };
    let response = result.map_err(unreachable)?;
    match response.status() {
        StatusCode::OK => {
            let undecodable =
                |source: reqwest::Error| RequestError::Decode { url, source: source.without_url() };
            response.json().await.map_err(undecodable)
        }
        StatusCode::BAD_REQUEST => {
            let reason = response.text().await.map_err(unreachable)?;
            Err(RequestError::Rejected(reason.trim_end().to_owned()))
        }
        code => Err(RequestError::Code { url, code }),
    }
}
