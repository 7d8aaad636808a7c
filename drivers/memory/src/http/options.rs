//! The section `[simulated]` of the configuration file.

use std::time::Duration;

use reqwest::Url;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Options of the drivers named `simulated`: a simulated cloud in a separate process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SimulatedOptions {
    /// The URL that `staffetta-simulated-network` prints when it starts.
    #[schemars(length(min = 1))]
    pub url: String,
    /// The timeout of a call, in milliseconds.
    #[schemars(range(min = 1))]
    pub timeout_ms: u64,
}

impl Default for SimulatedOptions {
    fn default() -> Self {
        Self { url: "http://127.0.0.1:9697".into(), timeout_ms: 10_000 }
    }
}

/// The error of options with which no client can be created.
#[derive(Debug, thiserror::Error)]
pub enum SimulatedOptionsError {
    /// The URL does not have the form `http://HOST:PORT`.
    #[error("`simulated.url` is not of the form http://HOST:PORT")]
    Url,
    /// The timeout is 0, so that every call would fail.
    #[error("`simulated.timeout_ms` is 0")]
    Timeout,
    /// The HTTP client cannot be created.
    #[error("the HTTP client of the simulated cloud cannot be made")]
    Client(#[source] reqwest::Error),
}

impl SimulatedOptions {
    /// Checks the options, and returns the URL without a slash at its end, and the timeout.
    pub(super) fn checked(&self) -> Result<(String, Duration), SimulatedOptionsError> {
        let url = Url::parse(&self.url).map_err(|_| SimulatedOptionsError::Url)?;
        let origin = url.origin().ascii_serialization();
        // A path, a query or a password is an error: the password would be shown in logs.
        if url.scheme() != "http" || url.as_str() != format!("{origin}/") {
            return Err(SimulatedOptionsError::Url);
        }
        if self.timeout_ms == 0 {
            return Err(SimulatedOptionsError::Timeout);
        }
        Ok((origin, Duration::from_millis(self.timeout_ms)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(url: &str, timeout_ms: u64) -> Result<String, String> {
        let options = SimulatedOptions { url: url.into(), timeout_ms };
        options.checked().map(|(url, _)| url).map_err(|error| error.to_string())
    }

    #[test]
    fn an_address_is_a_host_and_a_port_and_nothing_else() {
        assert_eq!(checked("http://127.0.0.1:9697", 1).as_deref(), Ok("http://127.0.0.1:9697"));
        assert_eq!(checked("http://[::1]:9697/", 1).as_deref(), Ok("http://[::1]:9697"));
        let wrong = Err("`simulated.url` is not of the form http://HOST:PORT".to_owned());
        for url in [
            "",
            "127.0.0.1:9697",
            "https://localhost",
            "http://a/b",
            "http://me:secret@a",
            "http://me@a",
            "http://a/?q",
            "http://a/#f",
        ] {
            assert_eq!(checked(url, 1), wrong, "{url}");
        }
    }

    #[test]
    fn a_time_out_of_nothing_is_refused() {
        assert_eq!(checked("http://a", 0), Err("`simulated.timeout_ms` is 0".to_owned()));
    }
}
