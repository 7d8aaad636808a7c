//! The certificate that a replica serves: from the Secret, or from files.

use std::convert::Infallible;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::watch_object;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use staffetta_handler::causes;
use tokio::task::spawn_blocking;
use tracing::{info, warn};

use super::certificate::{CertificateError, ServerCertificate};
use super::stored::StoredCertificates;
use crate::health::Health;
use crate::lock::lock;
use crate::metrics::WebhookMetrics;

/// The name of the readiness condition that there is a certificate.
pub(super) const CERTIFICATE: &str = "webhook certificate";
/// The interval at which the certificate files are read again.
const FILE_CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// The maximum size of a certificate or key file, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// The certificate that new connections get. It can be replaced at any time.
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

/// The reason why a file of the certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum CertificateFileError {
    /// The file cannot be read, or is larger than 1 MiB.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The content of the file cannot be used.
    #[error("the certificate in {} cannot be used", path.display())]
    Content {
        /// The file with the certificate.
        path: PathBuf,
        /// The reason.
        #[source]
        source: CertificateError,
    },
}

impl ServedCertificate {
    /// Creates the value without a certificate: connections are refused until there is one.
    pub(super) fn new(health: &Arc<Health>, metrics: &Arc<WebhookMetrics>) -> Self {
        health.set_unmet(CERTIFICATE, "there is none yet");
        Self { current: Mutex::default(), metrics: Arc::clone(metrics), health: Arc::clone(health) }
    }

    /// Serves the certificate chain with this key, both in PEM, from now on. Does nothing if they are served already.
    fn replace(&self, chain: String, key: String) -> Result<(), CertificateError> {
        let is_served = |(current, _): &(ServerCertificate, _)| current.chain == chain && current.key == key;
        if lock(&self.current).as_ref().is_some_and(is_served) {
            return Ok(());
        }
        let (certificate, certified) = ServerCertificate::read(chain, key)?;
        let expires = certificate.expires;
        info!(%expires, "the webhook serves another certificate");
        *lock(&self.current) = Some((certificate, certified));
        self.metrics.certificate_expires(expires);
        self.health.set_met(CERTIFICATE);
        Ok(())
    }

    /// Serves the certificate of the Secret `name`, whenever it changes.
    pub(super) async fn follow_secret(&self, secrets: Api<Secret>, name: &str) -> Infallible {
        let mut changes = pin!(watch_object(secrets, name).default_backoff());
        loop {
            match changes.next().await {
                Some(Ok(secret)) => {
                    let stored = secret.as_ref().map(StoredCertificates::read).unwrap_or_default();
                    let Some(serving) = stored.serving else {
                        info!(
                            secret = name,
                            "the Secret of the webhook has no usable certificate; the leader writes one"
                        );
                        continue;
                    };
                    if let Err(error) = self.replace(serving.chain, serving.key) {
                        warn!(
                            secret = name,
                            error = causes(&error),
                            "the certificate of the webhook cannot be used"
                        );
                    }
                }
                Some(Err(error)) => {
                    warn!(secret = name, error = causes(&error), "the Secret of the webhook cannot be read");
                }
                None => return std::future::pending().await,
            }
        }
    }

    /// Serves the certificate of the files. Fails if they cannot be used.
    pub(super) async fn load(&self, files: &CertificateFiles) -> Result<(), CertificateFileError> {
        let read = files.clone();
        let pem = spawn_blocking(move || read.read()).await;
        let (chain, key) = pem.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?;
        let content = |source| CertificateFileError::Content { path: files.certificate.clone(), source };
        self.replace(chain, key).map_err(content)
    }

    /// Reads the files again every [`FILE_CHECK_INTERVAL`]. If they cannot be used, as while they are being replaced, the last certificate stays.
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

impl CertificateFiles {
    /// Reads the certificate chain and the key from their files.
    fn read(&self) -> Result<(String, String), CertificateFileError> {
        Ok((text(&self.certificate)?, text(&self.key)?))
    }
}

/// Reads a file of at most [`MAX_FILE`] bytes as text.
fn text(path: &Path) -> Result<String, CertificateFileError> {
    let read = || {
        if fs::metadata(path)?.len() > MAX_FILE {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the file is larger than 1 MiB"));
        }
        fs::read_to_string(path)
    };
    read().map_err(|source| CertificateFileError::Read { path: path.to_owned(), source })
}

impl ResolvesServerCert for ServedCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        lock(&self.current).as_ref().map(|(_, certified)| Arc::clone(certified))
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
        lock(&served.current).as_ref().map(|(certificate, _)| certificate.chain.clone())
    }

    #[tokio::test(start_paused = true)]
    async fn replaced_files_are_served_and_unusable_ones_change_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let [chain_file, key_file] = ["tls.crt", "tls.key"].map(|name| folder.path().join(name));
        let files = CertificateFiles { certificate: chain_file.clone(), key: key_file.clone() };
        let (health, served) = served();
        assert!(matches!(served.load(&files).await, Err(CertificateFileError::Read { .. })));
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
        assert!(
            matches!(error, CertificateFileError::Content { .. }),
            "the key is that of the first: {error}"
        );
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
