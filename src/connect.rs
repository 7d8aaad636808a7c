//! The way to the Kubernetes API.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::HeaderValue;
use http::header::USER_AGENT;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tracing::warn;

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
    /// The client cannot be made of it.
    #[error("the client of the Kubernetes API cannot be made")]
    Client(#[source] Box<kube::Error>),
}

/// The way that `kubeconfig` describes; without it the service account of the pod or the user's own kubeconfig.
pub async fn client(kubeconfig: Option<&Path>) -> Result<Client, ConnectError> {
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
    // A watch says something each minute; what is silent for longer than this is dead.
    config.read_timeout = Some(Duration::from_secs(300));
    if config.accept_invalid_certs {
        warn!("the kubeconfig switches the verification of the API server's certificate off");
    }
    Client::try_from(config).map_err(|source| ConnectError::Client(Box::new(source)))
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
