//! Certificates with their private keys: generated ones, and those of files.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, date_time_ymd};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// The time by which the validity of a generated certificate starts before the certificate is generated, so that API servers whose clocks
/// are late accept it.
const BACKDATE: Duration = Duration::from_secs(5 * 60);

/// A usable certificate chain and its private key, in PEM, with the names and the expiry of the first certificate. It has no `Debug`,
/// which would show the key.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct ServerCertificate {
    /// The certificate chain in PEM, the certificate of the server first.
    pub(super) chain: String,
    /// The private key in PEM.
    pub(super) key: String,
    /// The DNS names and IP addresses for which the certificate is valid.
    pub(super) names: BTreeSet<String>,
    /// The time at which the certificate expires.
    pub(super) expires: Timestamp,
}

/// The reason why a certificate cannot be used or generated.
#[derive(Debug, thiserror::Error)]
pub(super) enum CertificateError {
    /// The certificate or the key is missing or malformed. The text says which.
    #[error("{0}")]
    Malformed(&'static str),
    /// The TLS library rejects the certificate or the key, or they do not belong together.
    #[error("the certificate and the key cannot be used together")]
    Unusable(#[source] rustls::Error),
    /// The certificate cannot be generated.
    #[error("generate a certificate")]
    Generate(#[source] rcgen::Error),
}

impl ServerCertificate {
    /// Generates a self-signed certificate for these DNS names and IP addresses, which expires `lifetime` after `now`. Fails if a name is
    /// invalid.
    ///
    /// The certificate is not a CA certificate: the webhook configuration makes API servers trust exactly this certificate.
    pub(super) fn generate(
        names: &BTreeSet<String>,
        now: Timestamp,
        lifetime: Duration,
    ) -> Result<Self, CertificateError> {
        let mut parameters = CertificateParams::new(names.iter().cloned().collect::<Vec<_>>())
            .map_err(CertificateError::Generate)?;
        let mut subject = DistinguishedName::new();
        subject.push(DnType::CommonName, "staffetta-webhook");
        parameters.distinguished_name = subject;
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let now = Duration::from_secs(u64::try_from(now.as_second()).unwrap_or_default());
        let since_1970 = |time: Duration| date_time_ymd(1970, 1, 1) + time;
        parameters.not_before = since_1970(now.saturating_sub(BACKDATE));
        parameters.not_after = since_1970(now + lifetime);
        let key = KeyPair::generate().map_err(CertificateError::Generate)?;
        let certificate = parameters.self_signed(&key).map_err(CertificateError::Generate)?;
        Self::read(certificate.pem(), key.serialize_pem()).map(|(certificate, _)| certificate)
    }

    /// Reads a certificate chain and its key from PEM. Also returns them in the form of the TLS library. Fails if one of them is missing or
    /// malformed, or if the two do not belong together.
    pub(super) fn read(chain: String, key: String) -> Result<(Self, Arc<CertifiedKey>), CertificateError> {
        let certificates = CertificateDer::pem_slice_iter(chain.as_bytes()).collect::<Result<Vec<_>, _>>();
        let certificates = certificates.unwrap_or_default();
        let missing = CertificateError::Malformed("there is no certificate in PEM");
        let first = certificates.first().ok_or(missing)?;
        let malformed = || CertificateError::Malformed("the certificate cannot be parsed");
        let (_, certificate) = X509Certificate::from_der(first).map_err(|_| malformed())?;
        let expires = certificate.validity().not_after.timestamp();
        let expires = Timestamp::from_second(expires).map_err(|_| malformed())?;
        let names = certificate.subject_alternative_name().map_err(|_| malformed())?;
        let names = names.iter().flat_map(|names| &names.value.general_names).filter_map(name).collect();
        let private = PrivateKeyDer::from_pem_slice(key.as_bytes())
            .map_err(|_| CertificateError::Malformed("there is no private key in PEM"))?;
        let provider = rustls::crypto::ring::default_provider();
        let certified = CertifiedKey::from_der(certificates, private, &provider);
        let certified = certified.map_err(CertificateError::Unusable)?;
        Ok((Self { chain, key, names, expires }, Arc::new(certified)))
    }
}

/// Returns `true` if `pem` contains certificates, and each of them can be parsed. API servers reject any other text.
pub(super) fn are_certificates(pem: &str) -> bool {
    let certificates = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>();
    certificates
        .is_ok_and(|all| !all.is_empty() && all.iter().all(|der| X509Certificate::from_der(der).is_ok()))
}

/// Returns a DNS name or an IP address in a certificate as text; `None` for other types of names.
fn name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(octets) => {
            let four = <[u8; 4]>::try_from(*octets).map(IpAddr::from);
            let ip = four.or_else(|_| <[u8; 16]>::try_from(*octets).map(IpAddr::from));
            ip.ok().map(|ip| ip.to_string())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> BTreeSet<String> {
        ["127.0.0.1", "::1", "staffetta-webhook.staffetta.svc"].map(str::to_owned).into()
    }

    #[test]
    fn a_generated_certificate_says_for_whom_and_how_long_it_is_valid() {
        let (now, day) = (Timestamp::from_second(1_800_000_000).unwrap(), Duration::from_secs(24 * 3600));
        let generated = ServerCertificate::generate(&names(), now, day).unwrap();
        assert_eq!(generated.names, names());
        assert_eq!(generated.expires, now + day);
    }

    #[test]
    fn a_key_of_another_certificate_is_rejected_and_not_shown() {
        let generate =
            || ServerCertificate::generate(&names(), Timestamp::now(), Duration::from_secs(60)).unwrap();
        let (one, other) = (generate(), generate());
        let read = |chain: &str, key: &str| {
            let read = ServerCertificate::read(chain.to_owned(), key.to_owned());
            read.map(|(certificate, _)| certificate.chain).unwrap_err().to_string()
        };
        assert_eq!(read(&one.chain, &other.key), "the certificate and the key cannot be used together");
        assert_eq!(read(&one.key, &one.chain), "there is no certificate in PEM");
        assert_eq!(read(&one.chain, ""), "there is no private key in PEM");
    }
}
