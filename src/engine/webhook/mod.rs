//! The admission webhook, which makes pods request an address of their node (handler `prefix_ip`).
//!
//! Every replica serves it, whether it leads or not. Its certificate is in files, or in a Secret that the leader writes; the leader also
//! makes the API servers trust that certificate.
//!
//! | module | content |
//! |---|---|
//! | `server` | TLS connections, with limits of their own |
//! | `review` | the request of the API server and the response to it |
//! | `served` | the certificate that a replica serves |
//! | `certificate` | certificates with their keys |
//! | `stored` | the certificates in the Secret |
//! | `target` | the `MutatingWebhookConfiguration` in the cluster |
//! | `rotation` | decides when a certificate is replaced |
//! | `watch` | the watch of one object in the cluster |
//! | `writer` | the leader's writes of the Secret and of `caBundle` |

mod certificate;
mod review;
mod rotation;
mod served;
mod server;
mod stored;
mod target;
mod watch;
mod writer;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use rustls::ServerConfig;
use staffetta_prefix_ip::HANDLER;
use staffetta_prefix_ip::admission::{NodeLabelError, PodAdmission, node_label};
use staffetta_prefix_ip::cluster::CONFIG_MAP;
use staffetta_prefix_ip::settings::Settings;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;
use tracing::info;

use crate::base::config::{Configuration, WebhookOptions};
use crate::base::connect::with_time_limit;
use crate::base::health::Health;
use crate::base::metrics::WebhookMetrics;
use served::{CertificateFiles, ServedCertificate};
use server::ReviewState;
use watch::states;
use writer::CertificateWriter;

/// The name of the readiness condition that the options in the ConfigMap `amazon-vpc-cni` were read.
const OPTIONS: &str = "webhook options";

/// The reason why the webhook cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// The webhook is configured, but its handler `prefix_ip` is not enabled.
    #[error(
        "`webhook.listen` is set, but the handler `{HANDLER}` is not enabled: pods would request what no node has"
    )]
    NoHandler,
    /// One of two options that belong together is missing.
    #[error("`webhook.{set}` is set, and `webhook.{missing}` is not; set both or none")]
    HalfSet {
        /// The option that is set.
        set: &'static str,
        /// The option that is missing.
        missing: &'static str,
    },
    /// The option `prefix_ip.node_label` is invalid.
    #[error(transparent)]
    Label(#[from] NodeLabelError),
    /// The files of the certificate cannot be used.
    #[error("the certificate of the webhook (`webhook.certificate_file`, `webhook.key_file`)")]
    Files(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The server cannot listen at its address.
    #[error("the webhook cannot listen at {address} (`webhook.listen`)")]
    Listen {
        /// The configured address.
        address: SocketAddr,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The TLS library rejects its settings.
    #[error("the TLS of the webhook cannot be set up")]
    Tls(#[source] rustls::Error),
}

/// The admission webhook as the options describe it: its address, its certificate, and the pods that it changes.
#[derive(Clone)]
pub(crate) struct Webhook {
    listen: SocketAddr,
    options: WebhookOptions,
    /// The namespace of the Secret with the certificate.
    namespace: String,
    admission: PodAdmission,
    /// The files of the certificate; `None` if the certificate is in the Secret.
    files: Option<CertificateFiles>,
}

impl Webhook {
    /// Returns the webhook that the options describe; `None` if they set no listen address. Its Secret is in the namespace of the leader's
    /// Lease: the configured one, or else `home`. Fails if the options are invalid, or if the handler `prefix_ip` is not enabled.
    pub(crate) fn of(configuration: &Configuration, home: &str) -> Result<Option<Self>, WebhookError> {
        let options = configuration.webhook.clone();
        let Some(listen) = options.listen else { return Ok(None) };
        if !configuration.kubernetes.enabled_handlers.iter().any(|handler| handler == HANDLER) {
            return Err(WebhookError::NoHandler);
        }
        let half = |set, missing| Err(WebhookError::HalfSet { set, missing });
        let files = match (options.certificate_file.clone(), options.key_file.clone()) {
            (Some(certificate), Some(key)) => Some(CertificateFiles { certificate, key }),
            (None, None) => None,
            (Some(_), None) => return half("certificate_file", "key_file"),
            (None, Some(_)) => return half("key_file", "certificate_file"),
        };
        let label = configuration.value[HANDLER]["node_label"].as_str().unwrap_or_default();
        let admission = PodAdmission::new(node_label(label)?);
        let namespace = configuration.leader_election.namespace.clone().unwrap_or_else(|| home.to_owned());
        Ok(Some(Self { listen, options, namespace, admission, files }))
    }

    /// Starts the HTTPS server, which runs until the returned task is dropped. `client` only reads. Fails if the server cannot listen, or
    /// if the files of the certificate cannot be used.
    pub(crate) async fn serve(
        &self,
        client: &Client,
        health: &Arc<Health>,
        metrics: &Arc<WebhookMetrics>,
    ) -> Result<AbortOnDropHandle<()>, WebhookError> {
        let served = Arc::new(ServedCertificate::new(health, metrics));
        if let Some(files) = &self.files {
            served.load(files).await.map_err(|error| WebhookError::Files(error.into()))?;
        }
        let failed = |source| WebhookError::Listen { address: self.listen, source };
        let listener = TcpListener::bind(self.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        info!(webhook = %address, "the webhook is listening");
        let acceptor = acceptor(&served).map_err(WebhookError::Tls)?;
        let (admission, enabled) = (self.admission.clone(), AtomicBool::default());
        let state = Arc::new(ReviewState { admission, enabled, metrics: Arc::clone(metrics) });
        health.set_unmet(OPTIONS, "not read yet");
        let (this, client, health) = (self.clone(), with_time_limit(client.clone()), Arc::clone(health));
        let work = async move {
            let certificate = async {
                if let Some(files) = &this.files {
                    served.follow_files(files).await
                } else {
                    let secrets = Api::namespaced(client.clone(), &this.namespace);
                    served.follow_secret(secrets, &this.options.secret_name).await
                }
            };
            tokio::select! {
                never = server::serve(listener, acceptor, Arc::clone(&state)) => match never {},
                never = certificate => match never {},
                never = follow_options(&client, &state.enabled, &health) => match never {},
            }
        };
        Ok(AbortOnDropHandle::new(tokio::spawn(work)))
    }

    /// Returns the future that renews the certificate in the Secret with `client`, which must be that of the leader; `None` if the
    /// certificate is in files.
    pub(crate) fn maintain_certificate(&self, client: &Client) -> Option<impl Future<Output = ()> + use<>> {
        if self.files.is_some() {
            return None;
        }
        let writer = CertificateWriter::new(client, &self.namespace, self.options.clone());
        Some(async { match writer.run().await {} })
    }
}

/// Returns the acceptor of TLS connections. Clients need no certificate, because the response to a review discloses nothing that its sender
/// does not know. Fails if the TLS library rejects its settings.
fn acceptor(served: &Arc<ServedCertificate>) -> Result<TlsAcceptor, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = builder.with_no_client_auth().with_cert_resolver(Arc::clone(served) as _);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Keeps `enabled` equal to the option `enable-windows-ipam` in the ConfigMap `amazon-vpc-cni`; `false` before there was one. A deleted
/// ConfigMap changes nothing, as in the handler.
async fn follow_options(client: &Client, enabled: &AtomicBool, health: &Health) -> Infallible {
    let (namespace, name) = CONFIG_MAP;
    let mut maps = pin!(states::<ConfigMap>(Api::namespaced(client.clone(), namespace), name));
    let mut last = None;
    while let Some(map) = maps.next().await {
        if let Some(map) = map {
            let (settings, _) = Settings::read(&map.data.unwrap_or_default(), last.as_ref());
            enabled.store(settings.enabled, Ordering::Relaxed);
            last = Some(settings);
        }
        health.set_met(OPTIONS);
    }
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::config::FileSchema;

    /// Reads the webhook of a configuration with these options, `SECTION__OPTION` each.
    fn webhook(options: &[(&str, &str)]) -> Result<Option<Webhook>, String> {
        let schema = FileSchema::assemble(&crate::control::assembly::registry()).unwrap();
        let variables =
            options.iter().map(|(name, value)| (format!("STAFFETTA_{name}").into(), (*value).into()));
        let configuration = Configuration::load(&schema, None, variables).unwrap();
        Webhook::of(&configuration, "home").map_err(|error| error.to_string())
    }

    #[test]
    fn the_webhook_needs_an_address_and_the_handler_and_both_files_or_none() {
        const LISTEN: (&str, &str) = ("WEBHOOK__LISTEN", "127.0.0.1:0");
        const HANDLERS: (&str, &str) = ("KUBERNETES__ENABLED_HANDLERS", "[\"prefix_ip\"]");
        const CERTIFICATE: (&str, &str) = ("WEBHOOK__CERTIFICATE_FILE", "/tls.crt");
        const KEY: (&str, &str) = ("WEBHOOK__KEY_FILE", "/tls.key");
        assert!(webhook(&[CERTIFICATE]).unwrap().is_none(), "it does not listen");
        let error = webhook(&[LISTEN]).err().unwrap();
        assert!(error.contains("the handler `prefix_ip` is not enabled"), "{error}");
        let error = webhook(&[LISTEN, HANDLERS, CERTIFICATE]).err().unwrap();
        assert_eq!(
            error,
            "`webhook.certificate_file` is set, and `webhook.key_file` is not; set both or none"
        );
        let error = webhook(&[LISTEN, HANDLERS, KEY]).err().unwrap();
        assert!(error.starts_with("`webhook.key_file` is set"), "{error}");
        let error = webhook(&[LISTEN, HANDLERS, ("PREFIX_IP__NODE_LABEL", "windows")]).err().unwrap();
        assert!(error.contains("`prefix_ip.node_label`"), "{error}");
        let generated = webhook(&[LISTEN, HANDLERS]).unwrap().unwrap();
        assert!(generated.files.is_none() && generated.namespace == "home");
        let elsewhere =
            webhook(&[LISTEN, HANDLERS, CERTIFICATE, KEY, ("LEADER_ELECTION__NAMESPACE", "away")]);
        let elsewhere = elsewhere.unwrap().unwrap();
        assert!(elsewhere.files.is_some() && elsewhere.namespace == "away");
    }
}
