//! The certificates of the kubelet APIs.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, SanType};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use staffetta_handler::causes;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tracing::{info, warn};

use super::{KubeletError, KubeletOptions};

/// The maximum size of a certificate or key file, in bytes.
const MAX_FILE_SIZE: u64 = 1 << 20;

/// The interval between two reads of the certificate and key files.
const RELOAD_INTERVAL: Duration = Duration::from_secs(60);

/// The maximum time that a new connection waits for a read of the certificate and key files.
const READ_TIMEOUT: Duration = Duration::from_secs(1);

/// A server certificate chain and its private key.
type ServerIdentity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// The server certificate and the client CA of the kubelet APIs. The configured files are read again when a connection
/// arrives and the last read is a minute old, because certificates are replaced before they expire.
pub(super) struct KubeletCertificates {
    options: KubeletOptions,
    /// The generated self-signed certificate, which is used without configured files.
    own: ServerIdentity,
    state: Mutex<State>,
}

/// The TLS configuration in use, and the state of the reads of the certificate and key files.
struct State {
    config: Arc<ServerConfig>,
    /// The earliest time of the next read of the certificate and key files; `None` during a read, so that a read that never ends
    /// occupies only one thread.
    due: Option<Instant>,
    /// The error of the last read of the certificate and key files; `None` if it succeeded.
    problem: Option<String>,
}

impl KubeletCertificates {
    /// Reads the configured files, or generates a self-signed certificate. Returns an error if a file cannot be used.
    pub(super) fn new(options: &KubeletOptions) -> Result<Self, KubeletError> {
        let own = own(options)?;
        let config = Arc::new(config(options, &own)?);
        let state = Mutex::new(State { config, due: Some(Instant::now() + RELOAD_INTERVAL), problem: None });
        Ok(Self { options: options.clone(), own, state })
    }

    /// Returns the TLS acceptor for a new connection. If the certificate and key files are to be read again, the connection waits for
    /// that read for at most [`READ_TIMEOUT`].
    pub(super) async fn acceptor(self: &Arc<Self>) -> TlsAcceptor {
        let due = self.state.lock().due.take_if(|due| *due <= Instant::now()).is_some();
        if due {
            let certificates = Arc::clone(self);
            let read = tokio::task::spawn_blocking(move || certificates.read_again());
            let _ = tokio::time::timeout(READ_TIMEOUT, read).await;
        }
        TlsAcceptor::from(Arc::clone(&self.state.lock().config))
    }

    /// Reads the certificate and key files again. If that fails, the previous certificates stay in use, and the error is logged,
    /// unless it is the same as before.
    fn read_again(&self) {
        let read = config(&self.options, &self.own);
        let mut state = self.state.lock();
        state.due = Some(Instant::now() + RELOAD_INTERVAL);
        match read {
            Ok(config) => {
                state.config = Arc::new(config);
                if state.problem.take().is_some() {
                    info!("the certificates of the kubelet APIs could be read again");
                }
            }
            Err(error) => {
                let error = causes(&error);
                if state.problem.as_ref() != Some(&error) {
                    warn!(
                        error,
                        "the certificates of the kubelet APIs cannot be read again: the last ones are used"
                    );
                    state.problem = Some(error);
                }
            }
        }
    }
}

/// Builds the TLS configuration. With a configured CA, clients are requested to present a certificate, but not required
/// to: clients without one may use fewer routes.
fn config(options: &KubeletOptions, (chain, key): &ServerIdentity) -> Result<ServerConfig, KubeletError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(KubeletError::Tls)?;
    let builder = match &options.client_authority {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(file)? {
                roots.add(certificate).map_err(KubeletError::Tls)?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build()
                .map_err(|_| malformed(file, "CA certificate"))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let (chain, key) = match &options.certificate {
        Some((certificate, key)) => (certificates(certificate)?, private_key(key)?),
        None => (chain.clone(), key.clone_key()),
    };
    builder.with_single_cert(chain, key).map_err(KubeletError::Tls)
}

/// Returns the content of a certificate or key file of at most [`MAX_FILE_SIZE`] bytes.
fn read(file: &Path) -> Result<Vec<u8>, KubeletError> {
    let fail = |source| KubeletError::Read { file: file.to_owned(), source };
    if fs::metadata(file).map_err(fail)?.len() > MAX_FILE_SIZE {
        return Err(malformed(file, "certificate or key: it is too large"));
    }
    fs::read(file).map_err(fail)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, KubeletError> {
    let text = read(file)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    chain.ok().filter(|chain| !chain.is_empty()).ok_or_else(|| malformed(file, "certificate"))
}

fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, KubeletError> {
    PrivateKeyDer::from_pem_slice(&read(file)?).map_err(|_| malformed(file, "key"))
}

fn malformed(file: &Path, what: &'static str) -> KubeletError {
    KubeletError::Malformed { file: file.to_owned(), what }
}

/// Generates a self-signed certificate for the addresses of the kubelet APIs. It is used until the process ends.
fn own(options: &KubeletOptions) -> Result<ServerIdentity, KubeletError> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "staffetta-kubelet");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.subject_alt_names = vec![SanType::IpAddress(options.address)];
    if options.listen != options.address {
        params.subject_alt_names.push(SanType::IpAddress(options.listen));
    }
    let key = KeyPair::generate().map_err(KubeletError::Make)?;
    let certificate = params.self_signed(&key).map_err(KubeletError::Make)?;
    let key = PrivateKeyDer::try_from(key.serialize_der())
        .map_err(|_| KubeletError::Make(rcgen::Error::CouldNotParseKeyPair))?;
    Ok((vec![certificate.der().clone()], key))
}
