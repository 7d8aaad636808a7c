//! The pool of connections, and whom it believes.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::{Certificate, Client, ClientBuilder, Identity, redirect, retry};

use crate::access::Tls;

/// How long it may take until a connection stands.
const CONNECT: Duration = Duration::from_secs(10);

/// How we are known in the logs of services.
const USER_AGENT: &str = concat!("staffetta/", env!("CARGO_PKG_VERSION"));

/// Why no connection can be made, whatever the services say.
#[derive(Debug, thiserror::Error)]
pub enum CloudError {
    /// A file of certificates cannot be read.
    #[error("cannot read the certificates in {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file of certificates says nothing that can be understood.
    #[error("{} holds no certificates, or no key, in PEM form", path.display())]
    NotPem {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: reqwest::Error,
    },
    /// The HTTP client cannot be made.
    #[error("the HTTP client of OpenStack cannot be made; has the system no certificates of authorities?")]
    Client(#[source] reqwest::Error),
}

/// A client that follows no redirect, which would carry the token elsewhere, and repeats nothing.
pub(super) fn client(tls: &Tls) -> Result<Client, CloudError> {
    // The first one wins, and all are the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = Client::builder()
        .user_agent(USER_AGENT)
        .connect_timeout(CONNECT)
        .redirect(redirect::Policy::none())
        .retry(retry::never())
        .tls_danger_accept_invalid_certs(tls.insecure);
    let builder = believing(builder, tls.ca_file.as_deref())?;
    let builder = match &tls.certificate_file {
        Some(path) => {
            let mut pem = read(path)?;
            if let Some(key) = &tls.key_file {
                pem.push(b'\n');
                pem.extend(read(key)?);
            }
            let identity = Identity::from_pem(&pem)
                .map_err(|source| CloudError::NotPem { path: path.clone(), source })?;
            builder.identity(identity)
        }
        None => builder,
    };
    builder.build().map_err(CloudError::Client)
}

fn believing(builder: ClientBuilder, ca_file: Option<&Path>) -> Result<ClientBuilder, CloudError> {
    let Some(path) = ca_file else { return Ok(builder) };
    let certificates = Certificate::from_pem_bundle(&read(path)?)
        .map_err(|source| CloudError::NotPem { path: path.to_owned(), source })?;
    Ok(builder.tls_certs_only(certificates))
}

fn read(path: &Path) -> Result<Vec<u8>, CloudError> {
    fs::read(path).map_err(|source| CloudError::Unreadable { path: path.to_owned(), source })
}
