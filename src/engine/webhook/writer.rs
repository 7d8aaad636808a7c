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
use kube::{Api, Client, Resource};
use staffetta_handler::{BackoffPolicy, causes};
use tokio::time::Instant;
use tracing::{info, warn};

use super::certificate::{CertificateError, ServerCertificate};
use super::rotation::{RotationStep, WebhookTrust, next_step};
use super::stored::StoredCertificates;
use super::target;
use super::watch::states;
use crate::base::config::WebhookOptions;
use crate::base::connect::with_time_limit;

/// The back-off after rotation steps that wrote something or failed, in case another program or webhook undoes what is written.
const BACKOFF: BackoffPolicy = BackoffPolicy::unlimited(Duration::from_secs(1), Duration::from_secs(60));
/// The maximum number of rotation steps without a delay.
const MAX_STEPS: usize = 5;
/// The longest time without a check, so that a change of the clock is noticed.
const MAX_CHECK_INTERVAL: Duration = Duration::from_secs(600);

/// The leader's work on the certificate of the webhook: replaces it before it expires, and makes the API servers trust the new one.
pub(super) struct CertificateWriter {
    secrets: Api<Secret>,
    configurations: Api<MutatingWebhookConfiguration>,
    options: WebhookOptions,
}

/// The last known state of the Secret and of the webhook configuration, each `None` if it was not read yet or does not exist.
#[derive(Default)]
struct ObservedObjects {
    secret: Option<Secret>,
    configuration: Option<MutatingWebhookConfiguration>,
    /// The part of the webhook configuration that concerns the certificate.
    trust: WebhookTrust,
}

/// The reason why a step of the certificate rotation failed.
#[derive(Debug, thiserror::Error)]
enum CertificateWriteError {
    /// A new certificate cannot be generated.
    #[error("generate a certificate for the webhook")]
    Generate(#[from] CertificateError),
    /// The Secret cannot be written.
    #[error("write the certificate of the webhook into its Secret")]
    WriteSecret(#[source] Box<kube::Error>),
    /// The field `caBundle` of the webhook configuration, with the certificates that API servers trust, cannot be written.
    #[error("write the certificates that API servers trust (`caBundle`)")]
    WriteBundle(#[source] Box<kube::Error>),
}

impl CertificateWriter {
    /// Creates the writer of the Secret, which is in `namespace`, and of the configuration. `client` writes only while this process leads.
    pub(super) fn new(client: &Client, namespace: &str, options: WebhookOptions) -> Self {
        let client = with_time_limit(client.clone());
        let secrets = Api::namespaced(client.clone(), namespace);
        Self { secrets, configurations: Api::all(client), options }
    }

    /// Watches the Secret and the webhook configuration, and executes the steps that are due, until the future is dropped.
    pub(super) async fn run(self) -> Infallible {
        let WebhookOptions { secret_name, configuration_name, .. } = &self.options;
        let mut secrets = pin!(states(self.secrets.clone(), secret_name));
        let mut configurations = pin!(states(self.configurations.clone(), configuration_name));
        let (mut observed, mut backoff) = (ObservedObjects::default(), BACKOFF.start());
        // A change makes steps due at once, but not before the end of a delay.
        let (mut due, mut delayed_until) = (Instant::now(), Instant::now());
        loop {
            tokio::select! {
                biased;
                Some(secret) = secrets.next() => {
                    observed.secret = existing(secret, secret_name);
                    due = Instant::now();
                }
                Some(configuration) = configurations.next() => {
                    observed.set_configuration(existing(configuration, configuration_name));
                    due = Instant::now();
                }
                () = tokio::time::sleep_until(due.max(delayed_until)) => {
                    let (is_delayed, wait) = self.act(&mut observed).await.unwrap_or_else(|error| {
                        warn!(error = causes(&error), "the certificate of the webhook cannot be replaced");
                        (true, Duration::ZERO)
                    });
                    if is_delayed {
                        delayed_until = Instant::now() + backoff.delay(None);
                    } else if delayed_until.elapsed() > BACKOFF.max {
                        // Nobody has undone the last write for longer than any delay.
                        backoff.reset();
                    }
                    due = Instant::now() + wait.min(MAX_CHECK_INTERVAL);
                }
            }
        }
    }

    /// Executes the steps that are due, up to [`MAX_STEPS`]. Returns `true` if something was written, and the time until the next step or
    /// check. Fails if a certificate cannot be generated or written.
    async fn act(&self, observed: &mut ObservedObjects) -> Result<(bool, Duration), CertificateWriteError> {
        let WebhookOptions { secret_name, configuration_name, certificate_lifetime, .. } = &self.options;
        let lifetime = (*certificate_lifetime).into();
        for step in 0..MAX_STEPS {
            let (wrote, trust) = (step > 0, &observed.trust);
            let configuration = observed.configuration.as_ref().filter(|_| !trust.names.is_empty());
            let (Some(secret), Some(configuration)) = (&observed.secret, configuration) else {
                return Ok((wrote, MAX_CHECK_INTERVAL));
            };
            let (stored, now) = (StoredCertificates::read(secret), Timestamp::now());
            let generate = || ServerCertificate::generate(&trust.names, now, lifetime);
            let written = match next_step(&stored, trust, lifetime, now) {
                RotationStep::Wait(due) => {
                    return Ok((wrote, Duration::try_from(due.duration_since(now)).unwrap_or_default()));
                }
                RotationStep::Replace => StoredCertificates::only(generate()?),
                RotationStep::Prepare => stored.prepared(generate()?),
                RotationStep::Promote => stored.promoted(now),
                RotationStep::Trust(bundle) => {
                    let patch = Patch::Strategic(target::patch(configuration, &bundle));
                    let written =
                        self.configurations.patch(configuration_name, &PatchParams::default(), &patch).await;
                    let written =
                        written.map_err(|error| CertificateWriteError::WriteBundle(Box::new(error)))?;
                    info!(
                        configuration = configuration_name,
                        "API servers trust the certificate of the webhook"
                    );
                    observed.set_configuration(Some(written));
                    continue;
                }
            };
            let patch = Patch::Merge(written.patch(secret.metadata.resource_version.as_deref()));
            let written = self.secrets.patch(secret_name, &PatchParams::default(), &patch).await;
            let written = written.map_err(|error| CertificateWriteError::WriteSecret(Box::new(error)))?;
            info!(secret = secret_name, "the certificates of the webhook were written");
            observed.secret = Some(written);
        }
        Ok((true, Duration::ZERO))
    }
}

impl ObservedObjects {
    /// Replaces the observed webhook configuration; `None` if it does not exist. If the certificates that API servers trust have changed,
    /// records the current time as that of the change.
    fn set_configuration(&mut self, configuration: Option<MutatingWebhookConfiguration>) {
        let names = configuration.as_ref().map(target::names).unwrap_or_default();
        let bundle = configuration.as_ref().and_then(target::bundle);
        let since = if bundle == self.trust.bundle { self.trust.since } else { Timestamp::now() };
        self.trust = WebhookTrust { names, bundle, since };
        self.configuration = configuration;
    }
}

/// Returns `object`. If that is `None`, logs a warning that the object called `name` does not exist.
fn existing<K: Resource<DynamicType = ()>>(object: Option<K>, name: &str) -> Option<K> {
    if object.is_none() {
        warn!(
            kind = %K::kind(&()),
            name, "an object of the webhook does not exist; install the Helm chart with webhook.enabled=true"
        );
    }
    object
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use http::{Method, Request, Response};
    use kube::client::Body;
    use parking_lot::Mutex;
    use serde_json::{Value, json};
    use tokio::sync::Notify;

    use super::*;

    /// An API server on which another program restores the webhook configuration `RESTORED_AFTER` each write.
    #[derive(Default)]
    struct Contended {
        /// The number of writes of the configuration.
        writes: AtomicUsize,
        /// The certificates of the last write.
        bundle: Mutex<Value>,
        /// Notified at each write.
        written: Notify,
        /// `true` if the watch has shown the last write, and the configuration is to be restored next.
        shown: AtomicBool,
        /// The number of requests that get no response from now on.
        silent: AtomicUsize,
    }

    /// The time after which the other program restores the configuration.
    const RESTORED_AFTER: Duration = Duration::from_secs(3);

    fn contended(state: &Arc<Contended>) -> Client {
        let state = Arc::clone(state);
        let server = move |request: Request<Body>| {
            let state = Arc::clone(&state);
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                let is_secret = parts.uri.path().contains("/secrets");
                let is_left = |left: usize| left.checked_sub(1);
                if state.silent.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_left).is_ok() {
                    return std::future::pending().await;
                }
                let is_watch = parts.uri.query().is_some_and(|query| query.contains("watch=true"));
                let mut object = if is_secret {
                    json!({ "apiVersion": "v1", "kind": "Secret" })
                } else {
                    let webhook = json!({ "name": "a.example", "clientConfig": { "url": "https://a/" },
                        "admissionReviewVersions": ["v1"], "sideEffects": "None" });
                    json!({ "apiVersion": "admissionregistration.k8s.io/v1",
                        "kind": "MutatingWebhookConfiguration", "webhooks": [webhook] })
                };
                object["metadata"] = json!({ "name": "w", "resourceVersion": "1" });
                let answer = match parts.method {
                    Method::PATCH if is_secret => {
                        object["data"] = serde_json::from_slice::<Value>(&body).unwrap()["data"].clone();
                        object["data"].as_object_mut().unwrap().retain(|_, value| !value.is_null());
                        object
                    }
                    Method::PATCH => {
                        let patch: Value = serde_json::from_slice(&body).unwrap();
                        let bundle = patch["webhooks"][0]["clientConfig"]["caBundle"].clone();
                        object["webhooks"][0]["clientConfig"]["caBundle"] = bundle.clone();
                        *state.bundle.lock() = bundle;
                        state.writes.fetch_add(1, Ordering::Relaxed);
                        state.written.notify_one();
                        object
                    }
                    _ if is_watch && is_secret => std::future::pending().await,
                    _ if is_watch => {
                        if state.shown.fetch_not(Ordering::Relaxed) {
                            tokio::time::sleep(RESTORED_AFTER).await;
                        } else {
                            state.written.notified().await;
                            object["webhooks"][0]["clientConfig"]["caBundle"] = state.bundle.lock().clone();
                        }
                        json!({ "type": "MODIFIED", "object": object })
                    }
                    _ => json!({ "metadata": { "resourceVersion": "1" }, "items": [object] }),
                };
                Ok::<_, Infallible>(Response::new(Body::from(format!("{answer}\n").into_bytes())))
            }
        };
        Client::new(tower::service_fn(server), "default")
    }

    #[tokio::test(start_paused = true)]
    async fn against_another_program_that_restores_the_configuration_writes_become_rare() {
        let state = Arc::default();
        let writer = CertificateWriter::new(&contended(&state), "default", WebhookOptions::default());
        tokio::time::timeout(Duration::from_secs(600), writer.run()).await.unwrap_err();
        let writes = state.writes.load(Ordering::Relaxed);
        assert!((10..30).contains(&writes), "{writes} writes in ten minutes");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_gets_no_response_is_repeated() {
        let state = Arc::new(Contended { silent: 2.into(), ..Contended::default() });
        let writer = CertificateWriter::new(&contended(&state), "default", WebhookOptions::default());
        let mut run = std::pin::pin!(writer.run());
        let wait = Duration::from_secs(120);
        tokio::time::timeout(wait, &mut run).await.unwrap_err();
        let writes = state.writes.load(Ordering::Relaxed);
        assert!(writes > 0, "the two lists at the start are repeated");
        state.silent.store(3, Ordering::Relaxed);
        tokio::time::timeout(wait * 2, &mut run).await.unwrap_err();
        assert!(state.writes.load(Ordering::Relaxed) > writes, "so are writes and watches");
    }
}
