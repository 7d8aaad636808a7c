//! The way to the Kubernetes API.

mod token;

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use http::header::USER_AGENT;
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tower::layer::layer_fn;
use tracing::warn;

use token::{Bearer, TokenFile};

/// By which the API server's audit log names this program.
const AGENT: &str = concat!("staffetta/", env!("CARGO_PKG_VERSION"));

/// Why there is no way to the Kubernetes API.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig that was named cannot be used.
    #[error("the kubeconfig {} cannot be used", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<kube::config::KubeconfigError>,
    },
    /// None was named, and there is neither a service account nor a usable default one.
    #[error(
        "no kubeconfig was named (--kubeconfig), and neither a service account nor a default kubeconfig can be used"
    )]
    Infer(#[source] Box<kube::config::InferConfigError>),
    /// The file with the token cannot be read.
    #[error("the token file {} cannot be used", path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The client cannot be made of it.
    #[error("the client of the Kubernetes API cannot be made")]
    Client(#[source] Box<kube::Error>),
}

/// The way to one API server.
#[derive(Clone)]
pub struct Connection {
    /// The client of its API.
    pub client: Client,
    /// Where it is, as `host:port`: a label of the metrics.
    pub host: String,
}

impl From<Client> for Connection {
    /// A client does not tell where its server is; the label says `unknown`.
    fn from(client: Client) -> Self {
        Self { client, host: "unknown".to_owned() }
    }
}

/// The client of the API server that `kubeconfig` describes; see [`connection`].
pub async fn client(kubeconfig: Option<&Path>) -> Result<Client, ConnectError> {
    Ok(connection(kubeconfig).await?.client)
}

/// The way that `kubeconfig` describes; without it the service account of the pod or the user's own kubeconfig.
pub async fn connection(kubeconfig: Option<&Path>) -> Result<Connection, ConnectError> {
    let mut config = match kubeconfig {
        Some(path) => from_file(path)
            .await
            .map_err(|source| ConnectError::Kubeconfig { path: path.to_owned(), source: Box::new(source) })?,
        None => Config::infer().await.map_err(|source| ConnectError::Infer(Box::new(source)))?,
    };
    // Retry repeats, and it alone: it knows what waits and what was superseded.
    config.default_retry = false;
    config.headers.push((USER_AGENT, HeaderValue::from_static(AGENT)));
    config.connect_timeout = Some(Duration::from_secs(10));
    // Whoever asks has a limit of its own for the answer. One of the connection would set a timer at each read and let it ring at
    // the next: a system call and a wake-up each time.
    config.read_timeout = None;
    if config.accept_invalid_certs {
        warn!("the kubeconfig switches the verification of the API server's certificate off");
    }
    let host = host(&config.cluster_url);
    let token = TokenFile::take(&mut config.auth_info);
    let builder = ClientBuilder::try_from(config).map_err(|source| ConnectError::Client(Box::new(source)))?;
    let Some(path) = token else { return Ok(Connection { client: builder.build(), host }) };
    let token = TokenFile::open(path.clone()).map_err(|source| ConnectError::Token { path, source })?;
    let token = Arc::new(token);
    let client = builder.with_layer(&layer_fn(|inner| Bearer::new(inner, Arc::clone(&token)))).build();
    Ok(Connection { client, host })
}

/// The host and the port of an address, and nothing else: it may hold a password too.
fn host(url: &http::Uri) -> String {
    let host = url.host().unwrap_or_default();
    url.port_u16().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

async fn from_file(path: &Path) -> Result<Config, kube::config::KubeconfigError> {
    Config::from_custom_kubeconfig(Kubeconfig::read_from(path)?, &KubeConfigOptions::default()).await
}

/// The API versions that the server has.
pub async fn api_versions(client: &Client) -> Result<HashSet<String>, kube::Error> {
    let groups = client.list_api_groups().await?;
    let versions = groups.groups.into_iter().flat_map(|group| group.versions);
    Ok(versions.map(|version| version.group_version).chain(["v1".to_owned()]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_label_of_the_server_holds_its_address_and_no_password() {
        for (url, label) in [
            ("https://10.96.0.1:443/api", "10.96.0.1:443"),
            ("https://admin:secret@[fd00::1]:6443", "[fd00::1]:6443"),
            ("https://kubernetes.default.svc", "kubernetes.default.svc"),
        ] {
            assert_eq!(host(&url.parse().unwrap()), label);
        }
    }
}
