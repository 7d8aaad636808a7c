//! The work of the leader for the webhook: writes the Secret with the certificate, and the certificates that
//! API servers trust.

use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::watch_object;
use kube::{Api, Client};
use staffetta_handler::{BackoffPolicy, causes};
use tracing::{info, warn};

use super::certificate::{CertificateError, PemIdentity};
use super::rotation::{RotationStep, WebhookTrust, next_step};
use super::stored::{StoredCertificates, StoredIdentity};
use super::target;

/// The delays after a write that failed.
const BACKOFF: BackoffPolicy = BackoffPolicy::unlimited(Duration::from_secs(1), Duration::from_secs(60));
/// The maximum number of steps without a pause, in case the API server does not keep what is written, for example because of another
/// webhook.
const MAX_STEPS: usize = 5;
/// The pause after [`MAX_STEPS`] steps. A change of the Secret or of the configuration ends it early.
const PAUSE_AFTER_STEPS: Duration = Duration::from_secs(10);
/// The longest time without a check, so that a change of the clock is noticed.
const MAX_CHECK_INTERVAL: Duration = Duration::from_secs(600);

/// Writes the certificate of the webhook before it expires, and makes the API servers trust it.
pub(super) struct CertificateWriter {
    secrets: Api<Secret>,
    secret_name: String,
    configurations: Api<MutatingWebhookConfiguration>,
    configuration_name: String,
    lifetime: Duration,
}

/// The last known state of the Secret and of the webhook configuration, each `None` if it was not read yet or does not exist.
#[derive(Default)]
struct ObservedObjects {
    secret: Option<Secret>,
    configuration: Option<MutatingWebhookConfiguration>,
    /// The certificates that API servers trust, and the time since which this has been known.
    trusted: (Option<String>, Timestamp),
}

/// The reason why a step of the leader failed.
#[derive(Debug, thiserror::Error)]
enum CertificateWriteError {
    /// A new certificate cannot be generated.
    #[error("generate a certificate for the webhook")]
    Generate(#[from] CertificateError),
    /// The Secret cannot be written.
    #[error("write the certificate of the webhook into its Secret")]
    WriteSecret(#[source] Box<kube::Error>),
    /// The certificates that API servers trust cannot be written.
    #[error("write the certificates that API servers trust (`caBundle`)")]
    WriteBundle(#[source] Box<kube::Error>),
}

impl CertificateWriter {
    /// Creates the writer of the Secret and the configuration with these names. `client` writes only while this process leads.
    pub(super) fn new(
        client: &Client,
        (namespace, secret): (&str, &str),
        configuration: &str,
        lifetime: Duration,
    ) -> Self {
        Self {
            secrets: Api::namespaced(client.clone(), namespace),
            secret_name: secret.to_owned(),
            configurations: Api::all(client.clone()),
            configuration_name: configuration.to_owned(),
            lifetime,
        }
    }

    /// Watches the Secret and the webhook configuration, and executes the steps that are due, until the future is dropped.
    pub(super) async fn run(self) -> Infallible {
        let secrets = watch_object(self.secrets.clone(), &self.secret_name).default_backoff();
        let configurations =
            watch_object(self.configurations.clone(), &self.configuration_name).default_backoff();
        let (mut secrets, mut configurations) = (pin!(secrets), pin!(configurations));
        let (mut observed, mut backoff) = (ObservedObjects::default(), BACKOFF.start());
        loop {
            let wait = match self.act(&mut observed).await {
                Ok(wait) => {
                    backoff = BACKOFF.start();
                    wait
                }
                Err(error) => {
                    warn!(error = causes(&error), "the certificate of the webhook cannot be replaced");
                    backoff.delay(None)
                }
            };
            tokio::select! {
                Some(secret) = secrets.next() => match secret {
                    Ok(secret) => observed.secret = existing(secret, "Secret", &self.secret_name),
                    Err(error) => unreadable(&error, "Secret", &self.secret_name),
                },
                Some(configuration) = configurations.next() => match configuration {
                    Ok(object) => {
                        let (kind, name) = ("MutatingWebhookConfiguration", &self.configuration_name);
                        observed.set_configuration(existing(object, kind, name));
                    }
                    Err(error) => unreadable(&error, "MutatingWebhookConfiguration", &self.configuration_name),
                },
                () = tokio::time::sleep(wait.min(MAX_CHECK_INTERVAL)) => {}
            }
        }
    }

    /// Executes the steps that are due. Returns the time until the next step or check.
    async fn act(&self, observed: &mut ObservedObjects) -> Result<Duration, CertificateWriteError> {
        for _ in 0..MAX_STEPS {
            let (Some(secret), Some(configuration)) = (&observed.secret, &observed.configuration) else {
                return Ok(MAX_CHECK_INTERVAL);
            };
            let (names, (bundle, since)) = (target::names(configuration), observed.trusted.clone());
            if names.is_empty() {
                return Ok(MAX_CHECK_INTERVAL);
            }
            let (stored, now) = (StoredCertificates::read(secret), Timestamp::now());
            let trust = WebhookTrust { names, bundle, since };
            let written = match next_step(&stored, &trust, self.lifetime, now) {
                RotationStep::Wait(due) => {
                    return Ok(Duration::try_from(due.duration_since(now)).unwrap_or_default());
                }
                RotationStep::Replace => StoredCertificates::only(self.generate(&trust, now)?),
                RotationStep::Prepare => stored.prepared(self.generate(&trust, now)?),
                RotationStep::Promote => stored.promoted(now),
                RotationStep::Trust(bundle) => {
                    let patch = Patch::Strategic(target::patch(configuration, &bundle));
                    let name = &self.configuration_name;
                    let written = self.configurations.patch(name, &PatchParams::default(), &patch).await;
                    let written =
                        written.map_err(|error| CertificateWriteError::WriteBundle(Box::new(error)))?;
                    info!(configuration = name, "API servers trust the certificate of the webhook");
                    observed.set_configuration(Some(written));
                    continue;
                }
            };
            let patch = Patch::Merge(written.patch(secret.metadata.resource_version.as_deref()));
            let written = self.secrets.patch(&self.secret_name, &PatchParams::default(), &patch).await;
            let written = written.map_err(|error| CertificateWriteError::WriteSecret(Box::new(error)))?;
            info!(secret = self.secret_name, "the certificates of the webhook were written");
            observed.secret = Some(written);
        }
        Ok(PAUSE_AFTER_STEPS)
    }

    /// Generates a certificate for the names by which API servers call the webhook.
    fn generate(&self, trust: &WebhookTrust, now: Timestamp) -> Result<StoredIdentity, CertificateError> {
        let identity = PemIdentity::generate(&trust.names, now, self.lifetime)?;
        Ok(StoredIdentity { facts: identity.facts()?, identity })
    }
}

impl ObservedObjects {
    /// Replaces the configuration. If the certificates that API servers trust have changed, records the current time as that of the change.
    fn set_configuration(&mut self, configuration: Option<MutatingWebhookConfiguration>) {
        let bundle = configuration.as_ref().and_then(target::bundle);
        if self.trusted.0 != bundle {
            self.trusted = (bundle, Timestamp::now());
        }
        self.configuration = configuration;
    }
}

/// Returns `object`, and logs a warning if it does not exist.
fn existing<K>(object: Option<K>, kind: &str, name: &str) -> Option<K> {
    if object.is_none() {
        warn!(
            kind,
            name, "an object of the webhook does not exist; install the Helm chart with webhook.enabled=true"
        );
    }
    object
}

/// Logs that an object cannot be read.
fn unreadable(error: &kube::runtime::watcher::Error, kind: &str, name: &str) {
    warn!(kind, name, error = causes(error), "an object of the webhook cannot be read");
}
