//! The certificates of the kubelet API.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, SanType};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use super::{KubeletError, KubeletOptions};

/// How large such a file may be, in bytes.
const LARGEST: u64 = 1 << 20;

/// Accepts TLS connections as the options say. A client certificate is asked for where there is an authority, and never required:
/// whoever shows none learns less.
pub(super) fn acceptor(options: &KubeletOptions) -> Result<TlsAcceptor, KubeletError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let (chain, key) = match &options.certificate {
        Some((certificate, key)) => (certificates(certificate)?, private_key(key)?),
        None => own(options)?,
    };
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
                .map_err(|_| malformed(file, "certificate of an authority"))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let config = builder.with_single_cert(chain, key).map_err(KubeletError::Tls)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn read(file: &Path) -> Result<Vec<u8>, KubeletError> {
    let fail = |source| KubeletError::Read { file: file.to_owned(), source };
    if fs::metadata(file).map_err(fail)?.len() > LARGEST {
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

/// A certificate that nobody signed but its own key, for as long as the process lives.
fn own(
    options: &KubeletOptions,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), KubeletError> {
    let mut params = CertificateParams::default();
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, "staffetta-kubelet");
    params.distinguished_name = name;
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
