//! The certificate that a replica serves: from the Secret, or from files.

use std::convert::Infallible;
use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use parking_lot::Mutex;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use staffetta_handler::causes;
use tokio::task::spawn_blocking;
use tower::BoxError;
use tracing::{info, warn};

use super::certificate::{CertificateError, ServerCertificate};
use super::stored::StoredCertificates;
use super::watch::states;
use crate::base::health::Health;
use crate::base::metrics::WebhookMetrics;

/// The name of the readiness condition that is met when the webhook has a certificate to serve.
pub(super) const CERTIFICATE: &str = "webhook certificate";
/// The interval at which the certificate files are read again.
const FILE_CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// The maximum size of a certificate or key file, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// The TLS certificate of new connections to the webhook. It can be replaced at any time.
pub(super) struct ServedCertificate {
    current: Mutex<Option<(ServerCertificate, Arc<CertifiedKey>)>>,
    metrics: Arc<WebhookMetrics>,
    health: Arc<Health>,
}

/// The paths of the files with the certificate chain and its key, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CertificateFiles {
    /// The path of the certificate chain.
    pub(super) certificate: PathBuf,
    /// The path of the private key.
    pub(super) key: PathBuf,
}

/// The error of a file of the certificate that cannot be read, or whose content cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the file {}", path.display())]
pub(super) struct CertificateFileError {
    path: PathBuf,
    source: BoxError,
}

impl ServedCertificate {
    /// Creates the value without a certificate. Until there is one, TLS handshakes fail and the process is not ready.
    pub(super) fn new(health: &Arc<Health>, metrics: &Arc<WebhookMetrics>) -> Self {
        health.set_unmet(CERTIFICATE, "there is none yet");
        Self { current: Mutex::default(), metrics: Arc::clone(metrics), health: Arc::clone(health) }
    }

    /// Serves the certificate chain with this key, both in PEM, from now on. Does nothing if they are served already. If they cannot be
    /// used, fails, and continues to serve the last one.
    fn replace(&self, chain: String, key: String) -> Result<(), CertificateError> {
        let is_served = |(current, _): &(ServerCertificate, _)| current.chain == chain && current.key == key;
        if self.current.lock().as_ref().is_some_and(is_served) {
            return Ok(());
        }
        let (certificate, certified) = ServerCertificate::read(chain, key)?;
        let expires = certificate.expires;
        info!(%expires, "the webhook serves another certificate");
        *self.current.lock() = Some((certificate, certified));
        self.metrics.certificate_expires(expires);
        self.health.set_met(CERTIFICATE);
        Ok(())
    }

    /// Watches the Secret `name` and serves its certificate. If that is missing or cannot be used, the last one stays.
    pub(super) async fn follow_secret(&self, secrets: Api<Secret>, name: &str) -> Infallible {
        let mut secrets = pin!(states(secrets, name));
        while let Some(secret) = secrets.next().await {
            let stored = secret.as_ref().map(StoredCertificates::read).unwrap_or_default();
            let Some(serving) = stored.serving else {
                info!(
                    secret = name,
                    "the Secret of the webhook has no usable certificate; the leader writes one"
                );
                continue;
            };
            if let Err(error) = self.replace(serving.chain, serving.key) {
                warn!(secret = name, error = causes(&error), "the certificate of the webhook cannot be used");
            }
        }
        std::future::pending().await
    }

    /// Reads the certificate and its key from files, and serves them. Fails if they cannot be used.
    pub(super) async fn load(&self, files: &CertificateFiles) -> Result<(), CertificateFileError> {
        let CertificateFiles { certificate, key } = files.clone();
        // In another thread, because a file system that does not respond must not block the process.
        let pem = spawn_blocking(move || Ok((text(&certificate)?, text(&key)?))).await;
        let (chain, key) = pem.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?;
        let replaced = self.replace(chain, key);
        replaced
            .map_err(|error| CertificateFileError { path: files.certificate.clone(), source: error.into() })
    }

    /// Reads the files again every [`FILE_CHECK_INTERVAL`]. If they cannot be used, as while they are replaced, the last certificate stays.
    pub(super) async fn follow_files(&self, files: &CertificateFiles) -> Infallible {
        let mut reported = None;
        loop {
            tokio::time::sleep(FILE_CHECK_INTERVAL).await;
            let error = self.load(files).await.err().map(|error| causes(&error));
            if let Some(error) = error.as_ref().filter(|_| error != reported) {
                warn!(error, "the certificate of the webhook cannot be read again; the last one is served");
            }
            reported = error;
        }
    }
}

/// Reads a file as text. Fails if it cannot be read, is larger than [`MAX_FILE`] bytes, or is not UTF-8.
fn text(path: &Path) -> Result<String, CertificateFileError> {
    let read = || {
        let mut text = String::new();
        fs::File::open(path)?.take(MAX_FILE + 1).read_to_string(&mut text)?;
        let is_too_large = text.len() as u64 > MAX_FILE;
        if is_too_large {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the file is larger than 1 MiB"));
        }
        Ok(text)
    };
    read().map_err(|error: io::Error| CertificateFileError { path: path.to_owned(), source: error.into() })
}

impl ResolvesServerCert for ServedCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current.lock().as_ref().map(|(_, certified)| Arc::clone(certified))
    }
}

impl fmt::Debug for ServedCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServedCertificate").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn certificate(name: &str) -> ServerCertificate {
        let lifetime = Duration::from_secs(3600);
        ServerCertificate::generate(&[name.to_owned()].into(), Timestamp::now(), lifetime).unwrap()
    }

    fn served() -> (Arc<Health>, ServedCertificate) {
        let health = Arc::default();
        let served = ServedCertificate::new(&health, &Arc::default());
        (health, served)
    }

    fn chain(served: &ServedCertificate) -> Option<String> {
        served.current.lock().as_ref().map(|(certificate, _)| certificate.chain.clone())
    }

    #[tokio::test(start_paused = true)]
    async fn replaced_files_are_served_and_unusable_ones_change_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let [chain_file, key_file] = ["tls.crt", "tls.key"].map(|name| folder.path().join(name));
        let files = CertificateFiles { certificate: chain_file.clone(), key: key_file.clone() };
        let (health, served) = served();
        assert_eq!(served.load(&files).await.unwrap_err().path, chain_file);
        assert!(health.conditions()[0].reason.is_some());
        let (first, second) = (certificate("a"), certificate("b"));
        let write = |certificate: &ServerCertificate| {
            fs::write(&chain_file, &certificate.chain).unwrap();
            fs::write(&key_file, &certificate.key).unwrap();
        };
        write(&first);
        served.load(&files).await.unwrap();
        assert_eq!(health.conditions()[0].reason, None);
        fs::write(&chain_file, &second.chain).unwrap();
        let error = served.load(&files).await.unwrap_err();
        let cause = causes(&error);
        assert!(cause.contains("cannot be used together"), "the key is that of the first: {cause}");
        fs::write(&key_file, " ".repeat((1 << 20) + 1)).unwrap();
        let error = served.load(&files).await.unwrap_err();
        assert!(error.path == key_file && causes(&error).contains("larger than 1 MiB"), "{error}");
        assert_eq!(chain(&served), Some(first.chain.clone()));
        write(&second);
        let follow = tokio::time::timeout(FILE_CHECK_INTERVAL * 2, served.follow_files(&files));
        assert!(follow.await.is_err());
        assert_eq!(chain(&served), Some(second.chain));
    }

    #[test]
    fn a_key_is_never_shown() {
        let (_, served) = served();
        let ServerCertificate { chain, key, .. } = certificate("a");
        served.replace(chain, key).unwrap();
        assert_eq!(format!("{served:?}"), "ServedCertificate { .. }");
    }
}
