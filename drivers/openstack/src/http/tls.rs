//! Builds the HTTP client with its TLS certificates.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::{Certificate, Client, Identity, redirect, retry};

use crate::access::TlsOptions;

/// The maximum time to establish a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The user agent that requests carry, for the logs of services.
const USER_AGENT: &str = concat!("staffetta/", env!("CARGO_PKG_VERSION"));

/// A failure to create the HTTP client from the TLS options.
#[derive(Debug, thiserror::Error)]
pub enum CloudError {
    /// A certificate or key file cannot be read.
    #[error("cannot read the certificates in {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A certificate file has invalid content, or a client certificate has no key.
    #[error("{} contains no certificates, or no key, in PEM form", path.display())]
    NotPem {
        /// The file.
        path: PathBuf,
        /// The cause; `None` if it is a file of CA certificates that contains no certificate in PEM form.
        #[source]
        source: Option<reqwest::Error>,
    },
    /// The HTTP client cannot be built.
    #[error("cannot build the HTTP client of OpenStack; does the system have CA certificates?")]
    Client(#[source] reqwest::Error),
}

/// Builds the HTTP client. It does not retry, and does not follow redirects, because a redirect would carry the token elsewhere.
pub(super) fn client(tls: &TlsOptions) -> Result<Client, CloudError> {
    // Only the first call installs it; all of them install the same provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = Client::builder()
        .user_agent(USER_AGENT)
        .connect_timeout(CONNECT_TIMEOUT)
        .redirect(redirect::Policy::none())
        .retry(retry::never())
        .tls_danger_accept_invalid_certs(tls.insecure);
    if let Some(path) = &tls.ca_file {
        let certificates = Certificate::from_pem_bundle(&read(path)?);
        let certificates = certificates.map_err(|source| not_pem(path, Some(source)))?;
        if certificates.is_empty() {
            return Err(not_pem(path, None));
        }
        builder = builder.tls_certs_only(certificates);
    }
    if let Some(path) = &tls.certificate_file {
        let mut pem = read(path)?;
        if let Some(key) = &tls.key_file {
            pem.push(b'\n');
            pem.extend(read(key)?);
        }
        builder = builder.identity(Identity::from_pem(&pem).map_err(|source| not_pem(path, Some(source)))?);
    }
    builder.build().map_err(CloudError::Client)
}

/// Returns the error of a certificate file `path` whose content is invalid.
fn not_pem(path: &Path, source: Option<reqwest::Error>) -> CloudError {
    CloudError::NotPem { path: path.to_owned(), source }
}

/// Reads a certificate or key file.
fn read(path: &Path) -> Result<Vec<u8>, CloudError> {
    fs::read(path).map_err(|source| CloudError::Unreadable { path: path.to_owned(), source })
}
