//! The TLS configuration of the connection to a broker.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring as crypto;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use staffetta_driver::{DriverError, Reason};

use super::options::MqttTunnelOptions;

/// The preparation of TLS, as errors name it.
const STEP: &str = "prepare TLS to the broker";

/// Builds the TLS configuration of the connection to the broker, which is always verified: by the CA certificates of the options, or those
/// of the operating system. Fails if there are none, if a file of the options cannot be used, or if only one of `cert_file` and `key_file`
/// is set.
pub(crate) fn config(options: &MqttTunnelOptions) -> Result<ClientConfig, DriverError> {
    let builder = ClientConfig::builder_with_provider(Arc::new(crypto::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| DriverError::new(Reason::Refused, STEP).because(error))?
        .with_root_certificates(authorities(options)?);
    match (&options.cert_file, &options.key_file) {
        (None, None) => Ok(builder.with_no_client_auth()),
        (Some(certificates), Some(key)) => {
            let chain = certificates_in(certificates, "cert_file")?;
            let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable("key_file", error))?;
            builder.with_client_auth_cert(chain, key).map_err(|error| unusable("cert_file", error))
        }
        (Some(_), None) => Err(refused("key_file", "required, because `cert_file` is set")),
        (None, Some(_)) => Err(refused("cert_file", "required, because `key_file` is set")),
    }
}

/// Returns the certificate authorities that may sign the certificate of the broker: those in `ca_file`, or else those of the operating
/// system. Fails if there are none.
fn authorities(options: &MqttTunnelOptions) -> Result<RootCertStore, DriverError> {
    let mut roots = RootCertStore::empty();
    if let Some(file) = &options.ca_file {
        for certificate in certificates_in(file, "ca_file")? {
            roots.add(certificate).map_err(|error| unusable("ca_file", error))?;
        }
    } else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return Err(refused("ca_file", "required, because this system has no CA certificates"));
        }
    }
    Ok(roots)
}

/// Returns the certificates in a file. Returns an error if there are none.
fn certificates_in(file: &Path, option: &str) -> Result<Vec<CertificateDer<'static>>, DriverError> {
    let certificates = CertificateDer::pem_file_iter(file).map_err(|error| unusable(option, error))?;
    let certificates: Vec<_> =
        certificates.collect::<Result<_, _>>().map_err(|error| unusable(option, error))?;
    if certificates.is_empty() { Err(refused(option, "contains no certificate")) } else { Ok(certificates) }
}

/// Returns the error of an option that cannot be used, for the reason `why`.
fn refused(option: &str, why: &str) -> DriverError {
    DriverError::new(Reason::Refused, STEP).detail(format!("{option}: {why}"))
}

/// Returns the error of an option whose file cannot be read or parsed.
fn unusable(option: &str, error: impl std::error::Error + Send + Sync + 'static) -> DriverError {
    refused(option, "cannot be used").because(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_missing_or_empty_are_refused_by_option() {
        let folder = tempfile::tempdir().unwrap();
        let empty = folder.path().join("empty");
        std::fs::write(&empty, "").unwrap();
        let (empty, missing) = (Some(empty), Some(folder.path().join("missing")));
        let tls = |ca_file, cert_file, key_file| MqttTunnelOptions {
            ca_file,
            cert_file,
            key_file,
            ..MqttTunnelOptions::default()
        };
        for (options, option) in [
            (tls(missing.clone(), None, None), "ca_file: "),
            (tls(empty.clone(), None, None), "ca_file: contains no certificate"),
            (tls(None, empty.clone(), None), "key_file: required"),
            (tls(None, None, empty.clone()), "cert_file: required"),
            (tls(None, empty, missing), "cert_file: contains no certificate"),
        ] {
            let error = config(&options).err().unwrap();
            assert!(
                error.reason() == Reason::Refused && error.to_string().contains(option),
                "{option} in {error}"
            );
        }
    }
}
