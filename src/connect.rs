//! The way to the Kubernetes API.

mod discreet;
mod key_files;
mod refusals;
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
use tower::util::MapErrLayer;
use tracing::warn;

pub use discreet::Discreet;
pub use key_files::KeyFiles;
use refusals::Refusals;
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
        source: Discreet,
    },
    /// None was named, and there is neither a service account nor a usable default one.
    #[error(
        "no kubeconfig was named (--kubeconfig), and neither a service account nor a default kubeconfig can be used"
    )]
    Infer(#[source] Discreet),
    /// The file with the token cannot be read.
    #[error("the token file {} cannot be used", path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file with the client's certificate or its key cannot be read.
    #[error("the client's certificate and key cannot be used")]
    Key(#[source] io::Error),
    /// The client cannot be made of it.
    #[error("the client of the Kubernetes API cannot be made")]
    Client(#[source] Discreet),
}

/// The way to one API server.
#[derive(Clone)]
pub struct Connection {
    /// The client of its API.
    pub client: Client,
    /// Where it is, as `host:port`: a label of the metrics.
    pub host: String,
    /// The files with the certificate and the key of the client, which is made with them once.
    pub key_files: KeyFiles,
}

impl From<Client> for Connection {
    /// A client does not tell where its server is; the label says `unknown`.
    fn from(client: Client) -> Self {
        Self { client, host: "unknown".to_owned(), key_files: KeyFiles::default() }
    }
}

/// The client of the API server that `kubeconfig` describes; see [`connection`].
pub async fn client(kubeconfig: Option<&Path>) -> Result<Client, ConnectError> {
    Ok(connection(kubeconfig).await?.client)
}

/// The way that `kubeconfig` describes; without it the service account of the pod or the user's own kubeconfig.
pub async fn connection(kubeconfig: Option<&Path>) -> Result<Connection, ConnectError> {
    let mut config = config(kubeconfig).await?;
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
    let key_files = KeyFiles::of(&config.auth_info).map_err(ConnectError::Key)?;
    let token = TokenFile::take(&mut config.auth_info);
    let builder = ClientBuilder::try_from(config).map_err(|source| ConnectError::Client(source.into()))?;
    let builder = builder.with_layer(&MapErrLayer::new(discreet::of_request));
    let builder = builder.with_layer(&layer_fn(Refusals::new));
    let Some(path) = token else { return Ok(Connection { client: builder.build(), host, key_files }) };
    let token = TokenFile::open(path.clone()).map_err(|source| ConnectError::Token { path, source })?;
    let token = Arc::new(token);
    let client = builder.with_layer(&layer_fn(|inner| Bearer::new(inner, Arc::clone(&token)))).build();
    Ok(Connection { client, host, key_files })
}

/// What kube makes of `kubeconfig`, and the file with the certificates of the API server's authority besides: kube reads
/// that again each minute, as it does in a pod.
async fn config(kubeconfig: Option<&Path>) -> Result<Config, ConnectError> {
    let (mut config, read) = if let Some(path) = kubeconfig {
        from_file(path)
            .await
            .map_err(|source| ConnectError::Kubeconfig { path: path.to_owned(), source: source.into() })?
    } else {
        let config = Config::infer().await.map_err(|source| ConnectError::Infer(source.into()))?;
        (config, Kubeconfig::read().unwrap_or_default())
    };
    config.root_cert_file = config.root_cert_file.or_else(|| authority_file(&read));
    Ok(config)
}

/// The file with the certificates of the authority of the current context's cluster, unless the kubeconfig carries them itself.
fn authority_file(kubeconfig: &Kubeconfig) -> Option<PathBuf> {
    let current = kubeconfig.current_context.as_ref()?;
    let named = kubeconfig.contexts.iter().find(|named| named.name == *current)?;
    let context = named.context.as_ref()?;
    let named = kubeconfig.clusters.iter().find(|named| named.name == context.cluster)?;
    let cluster = named.cluster.as_ref().filter(|cluster| cluster.certificate_authority_data.is_none())?;
    cluster.certificate_authority.as_ref().map(PathBuf::from)
}

/// The host and the port of an address, and nothing else: it may hold a password too.
fn host(url: &http::Uri) -> String {
    let host = url.host().unwrap_or_default();
    url.port_u16().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

async fn from_file(path: &Path) -> Result<(Config, Kubeconfig), kube::config::KubeconfigError> {
    let read = Kubeconfig::read_from(path)?;
    let config = Config::from_custom_kubeconfig(read.clone(), &KubeConfigOptions::default()).await?;
    Ok((config, read))
}

/// The API versions that the server has.
pub async fn api_versions(client: &Client) -> Result<HashSet<String>, kube::Error> {
    let groups = client.list_api_groups().await?;
    let versions = groups.groups.into_iter().flat_map(|group| group.versions);
    Ok(versions.map(|version| version.group_version).chain(["v1".to_owned()]).collect())
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::prelude::BASE64_STANDARD;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn the_file_of_the_authority_is_read_again_and_what_a_kubeconfig_carries_cannot_be() {
        let folder = tempfile::tempdir().unwrap();
        let pem = rcgen::generate_simple_self_signed(["server".to_owned()]).unwrap().cert.pem();
        std::fs::write(folder.path().join("ca.crt"), &pem).unwrap();
        let server = "https://127.0.0.1:1";
        let carried = BASE64_STANDARD.encode(&pem);
        for (cluster, expected) in [
            (
                json!({ "server": server, "certificate-authority": "ca.crt" }),
                Some(folder.path().join("ca.crt")),
            ),
            (
                json!({ "server": server, "certificate-authority": "ca.crt", "certificate-authority-data": carried }),
                None,
            ),
            (json!({ "server": server }), None),
        ] {
            let path = folder.path().join("kubeconfig");
            let context = json!({ "name": "context", "context": { "cluster": "cluster", "user": "user" } });
            let content = json!({ "current-context": "context", "contexts": [context],
                "clusters": [{ "name": "other", "cluster": { "server": server, "certificate-authority": "no" } },
                    { "name": "cluster", "cluster": cluster }],
                "users": [{ "name": "user", "user": {} }] });
            std::fs::write(&path, content.to_string()).unwrap();
            assert_eq!(config(Some(&path)).await.unwrap().root_cert_file, expected, "{content}");
        }
    }

    #[tokio::test]
    async fn what_a_program_for_credentials_writes_while_it_is_asked_again_is_in_no_error() {
        let folder = tempfile::tempdir().unwrap();
        let (path, asked) = (folder.path().join("kubeconfig"), folder.path().join("asked"));
        // Its first token is over at once, so that it is asked again for each request.
        let script = format!(
            "if [ -e {0} ]; then echo 'status: hunter2'; else touch {0}; echo 'status: {{token: one, expirationTimestamp: \
             \"2026-01-01T00:00:00Z\"}}'; fi",
            asked.display()
        );
        let exec = json!({ "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
            "command": "sh", "args": ["-c", script] });
        let context = json!({ "name": "context", "context": { "cluster": "cluster", "user": "user" } });
        let content = json!({ "current-context": "context", "contexts": [context],
            "clusters": [{ "name": "cluster", "cluster": { "server": "http://127.0.0.1:1" } }],
            "users": [{ "name": "user", "user": { "exec": exec } }] });
        std::fs::write(&path, content.to_string()).unwrap();
        let client = client(Some(&path)).await.unwrap();
        let error = api_versions(&client).await.unwrap_err();
        assert!(matches!(error, kube::Error::Service(_)), "{error}");
        let told = format!("{} {error:?}", staffetta_handler::causes(&error));
        assert!(told.contains("wrote is no `ExecCredential` at line 1, column 9"), "{told}");
        assert!(!told.contains("hunter2"), "{told}");
    }

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
