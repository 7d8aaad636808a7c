//! Connects to the Kubernetes API.

mod error_status;
mod key_files;
mod redacted;
mod token;

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::HeaderValue;
use http::header::USER_AGENT;
use kube::api::{ListParams, ObjectList};
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use tokio::time::timeout;
use tower::util::{AndThenLayer, MapErrLayer};
use tracing::warn;

use crate::base::config::http_url;
use error_status::with_status;
pub use key_files::KeyFiles;
pub use redacted::RedactedError;
use token::{TokenFile, authenticated};

/// The time limit of one request for the webhook, and of one request of `cleanup`, `migrate` and `uninstall`, which repeat a failed request only
/// after a conflict (409).
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The maximum number of objects in one page of a list.
const PAGE: u32 = 500;

/// The user agent of all requests, which the audit log of the API server shows.
const USER_AGENT_VALUE: &str = concat!("staffetta/", env!("CARGO_PKG_VERSION"));

/// The reason why the client of the Kubernetes API cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig that the command line or the configuration names, or the context of the default one, cannot be used.
    #[error("cannot use the {0}")]
    Kubeconfig(String, #[source] RedactedError),
    /// The option `kubernetes.api_root`, whose value this is, is no URL with the scheme `http` or `https` and a host.
    #[error("`kubernetes.api_root` is `{0}`, which is not a URL such as https://192.0.2.1:6443")]
    ApiRoot(String),
    /// Neither a kubeconfig nor the service account of a pod was found.
    #[error(
        "no kubeconfig is given (--kubeconfig), and there is neither a service account nor a usable default kubeconfig"
    )]
    Infer(#[source] RedactedError),
    /// The token file, or the client certificate and its key, cannot be read.
    #[error("cannot use the {0}")]
    Credentials(String, #[source] io::Error),
    /// The library `kube` rejects the connection settings.
    #[error("cannot build the client of the Kubernetes API")]
    Client(#[source] RedactedError),
}

/// A connection to the API server of a cluster.
#[derive(Clone)]
pub struct Connection {
    /// The client of the Kubernetes API.
    pub client: Client,
    /// The address of the API server as `host:port`, for the label `host` of metrics.
    pub host: String,
    /// The files of the client certificate and its key. The client reads them only once; [`KeyFiles::replaced`] tells when they change.
    pub key_files: KeyFiles,
}

impl From<Client> for Connection {
    /// Makes a connection with the host `unknown`, because a client does not show its server.
    fn from(client: Client) -> Self {
        Self { client, host: "unknown".to_owned(), key_files: KeyFiles::default() }
    }
}

/// Builds the connection that the file `kubeconfig` describes. If that is `None`, builds that of the user's default kubeconfig or, without
/// a usable one, that of the service account of the pod. `api_root` replaces the URL of the API server. No request is sent.
pub async fn connection(
    kubeconfig: Option<&Path>,
    api_root: Option<&str>,
) -> Result<Connection, ConnectError> {
    let mut config = config(kubeconfig, None).await?;
    if let Some(url) = api_root {
        config.cluster_url = http_url(url).ok_or_else(|| ConnectError::ApiRoot(url.to_owned()))?;
    }
    connect(config)
}

/// Builds a client with the rights of the user: from the file `kubeconfig` or the user's default kubeconfig, with its context `context` or
/// its current context. With neither argument and no usable default kubeconfig, the service account of the pod is used. No request is sent.
pub async fn client(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Client, ConnectError> {
    Ok(connect(config(kubeconfig, context).await?)?.client)
}

/// Builds the connection that `config` describes, without the retries and the read time limit of the crate kube.
fn connect(mut config: Config) -> Result<Connection, ConnectError> {
    // Requests are repeated by the chain, which knows whether an event was superseded.
    config.default_retry = false;
    config.headers.push((USER_AGENT, HeaderValue::from_static(USER_AGENT_VALUE)));
    config.connect_timeout = Some(Duration::from_secs(10));
    // Callers have time limits of their own. A limit of the connection would set a timer at each read.
    config.read_timeout = None;
    if config.accept_invalid_certs {
        warn!("the kubeconfig disables verification of the API server's certificate");
    }
    let host = host(&config.cluster_url);
    let key_files = KeyFiles::of(&config.auth_info)
        .map_err(|source| ConnectError::Credentials("client certificate and key".to_owned(), source))?;
    let token = TokenFile::take(&mut config.auth_info);
    let builder = ClientBuilder::try_from(config).map_err(|source| ConnectError::Client(source.into()))?;
    let builder = builder.with_layer(&MapErrLayer::new(redacted::redact_request_error));
    let builder = builder.with_layer(&AndThenLayer::new(with_status));
    let mut client = builder.build();
    if let Some(path) = token {
        let name = format!("token file {}", path.display());
        let token = TokenFile::open(path).map_err(|source| ConnectError::Credentials(name, source))?;
        client = authenticated(client, token);
    }
    Ok(Connection { client, host, key_files })
}

/// Returns the configuration of a client of the crate kube for `kubeconfig` and `context`. The path of the CA file is added, so that kube
/// reads the file again each minute, as it does in a pod.
async fn config(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Config, ConnectError> {
    let (read, name) = match (kubeconfig, context) {
        (Some(path), _) => (Kubeconfig::read_from(path), format!("kubeconfig {}", path.display())),
        (None, Some(context)) => {
            let name = format!("context `{context}` of the kubeconfig ($KUBECONFIG or ~/.kube/config)");
            (Kubeconfig::read(), name)
        }
        (None, None) => {
            let config = Config::infer().await.map_err(|source| ConnectError::Infer(source.into()))?;
            return Ok(with_ca_file(config, &Kubeconfig::read().unwrap_or_default()));
        }
    };
    let config = from_kubeconfig(read, context).await;
    config.map_err(|source| ConnectError::Kubeconfig(name, (&source).into()))
}

/// Returns the configuration of a client from a kubeconfig, for its context `context` or its current context.
async fn from_kubeconfig(
    read: Result<Kubeconfig, KubeconfigError>,
    context: Option<&str>,
) -> Result<Config, KubeconfigError> {
    let mut read = read?;
    if let Some(context) = context {
        read.current_context = Some(context.to_owned());
    }
    let config = Config::from_custom_kubeconfig(read.clone(), &KubeConfigOptions::default()).await?;
    Ok(with_ca_file(config, &read))
}

/// Adds the path of the CA file of the cluster in the current context, unless the kubeconfig contains the certificates itself.
fn with_ca_file(mut config: Config, kubeconfig: &Kubeconfig) -> Config {
    let file = || {
        let current = kubeconfig.current_context.as_ref()?;
        let named = kubeconfig.contexts.iter().find(|named| named.name == *current)?;
        let context = named.context.as_ref()?;
        let named = kubeconfig.clusters.iter().find(|named| named.name == context.cluster)?;
        let cluster =
            named.cluster.as_ref().filter(|cluster| cluster.certificate_authority_data.is_none())?;
        cluster.certificate_authority.as_ref().map(PathBuf::from)
    };
    config.root_cert_file = config.root_cert_file.or_else(file);
    config
}

/// Returns the host and the port of a URL, without user and password.
fn host(url: &http::Uri) -> String {
    let host = url.host().unwrap_or_default();
    url.port_u16().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// Returns the API versions that the server offers, such as `v1` and `apps/v1`.
pub async fn api_versions(client: &Client) -> Result<HashSet<String>, kube::Error> {
    let groups = client.list_api_groups().await?;
    let versions = groups.groups.into_iter().flat_map(|group| group.versions);
    Ok(versions.map(|version| version.group_version).chain(["v1".to_owned()]).collect())
}

/// Returns all objects of a list, which is requested in pages. `page` sends the request for one page, which must be answered within
/// [`REQUEST_TIMEOUT`].
pub(crate) async fn list<K: Clone>(
    parameters: ListParams,
    page: impl AsyncFn(&ListParams) -> Result<ObjectList<K>, kube::Error>,
) -> Result<Vec<K>, kube::Error> {
    let (mut objects, mut parameters) = (Vec::new(), parameters.limit(PAGE));
    loop {
        let page = answer(page(&parameters)).await?;
        objects.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters.continue_token = Some(token),
            None => return Ok(objects),
        }
    }
}

/// Returns `true` if the API server responded that the object or the kind does not exist (404).
pub(crate) fn is_missing(error: &kube::Error) -> bool {
    // An unknown kind is a 404 in plain text, whose reason kube does not know: `Status::is_not_found` is false for it.
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// Returns the objects of a list request; an empty list if the request failed because the server does not serve the kind (404).
pub(crate) fn none_if_missing<K>(listed: Result<Vec<K>, kube::Error>) -> Result<Vec<K>, kube::Error> {
    match listed {
        Err(error) if is_missing(&error) => Ok(Vec::new()),
        listed => listed,
    }
}

/// Returns the response to `request`; fails if the API server does not respond within [`REQUEST_TIMEOUT`].
pub(crate) async fn answer<T>(
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, kube::Error> {
    let late = || kube::Error::Service(format!("no answer within {} s", REQUEST_TIMEOUT.as_secs()).into());
    timeout(REQUEST_TIMEOUT, request).await.unwrap_or_else(|_| Err(late()))
}

/// Returns a client with a time limit of [`REQUEST_TIMEOUT`] for the response to a request, or for the begin of a watch.
pub(crate) fn with_time_limit(client: Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request| {
        let client = client.clone();
        async move { answer(client.send(request)).await }
    });
    Client::new(service, namespace)
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::prelude::BASE64_STANDARD;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn a_kind_that_the_server_does_not_serve_has_no_objects_and_is_an_error_elsewhere() {
        // As a real API server responds for a definition that is not installed.
        let service = tower::service_fn(async |_: http::Request<kube::client::Body>| {
            let response = http::Response::builder().status(404);
            with_status(response.body("404 page not found\n".to_owned()).expect("it is a response")).await
        });
        let api = Api::<ConfigMap>::all(Client::new(service, "default"));
        let listed = async || list(ListParams::default(), async |page| api.list(page).await).await;
        assert!(listed().await.is_err());
        assert_eq!(none_if_missing(listed().await).unwrap(), []);
    }

    #[tokio::test]
    async fn the_ca_file_is_read_again_unless_the_kubeconfig_contains_the_certificates() {
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
            assert_eq!(config(Some(&path), None).await.unwrap().root_cert_file, expected, "{content}");
        }
    }

    #[tokio::test]
    async fn no_error_quotes_the_output_of_a_credential_plugin() {
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
        let client = client(Some(&path), None).await.unwrap();
        let error = api_versions(&client).await.unwrap_err();
        assert!(matches!(error, kube::Error::Service(_)), "{error}");
        let reported = format!("{} {error:?}", staffetta_handler::causes(&error));
        assert!(reported.contains("is not an `ExecCredential` at line 1, column 9"), "{reported}");
        assert!(!reported.contains("hunter2"), "{reported}");
    }

    #[tokio::test]
    async fn the_api_root_replaces_the_address_of_the_server() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        let content = json!({ "current-context": "c", "contexts": [{ "name": "c", "context": { "cluster": "k", "user": "u" } }],
            "clusters": [{ "name": "k", "cluster": { "server": "http://10.96.0.1" } }], "users": [{ "name": "u", "user": {} }] });
        std::fs::write(&path, content.to_string()).unwrap();
        let host = async |root| connection(Some(&path), root).await.map(|connection| connection.host);
        assert_eq!(host(None).await.unwrap(), "10.96.0.1");
        assert_eq!(host(Some("http://192.0.2.1:6443")).await.unwrap(), "192.0.2.1:6443");
        for wrong in ["192.0.2.1:6443", "ftp://192.0.2.1", "http://:6443", "http://[", ""] {
            assert!(matches!(host(Some(wrong)).await, Err(ConnectError::ApiRoot(_))), "{wrong}");
        }
    }

    #[test]
    fn the_host_label_contains_no_password() {
        for (url, label) in [
            ("https://10.96.0.1:443/api", "10.96.0.1:443"),
            ("https://admin:secret@[fd00::1]:6443", "[fd00::1]:6443"),
            ("https://kubernetes.default.svc", "kubernetes.default.svc"),
        ] {
            assert_eq!(host(&url.parse().unwrap()), label);
        }
    }
}
