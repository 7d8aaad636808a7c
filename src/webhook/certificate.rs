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

/// A certificate chain and its private key, in PEM. It has no `Debug`, which would show the key.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct PemIdentity {
    /// The certificate chain in PEM, the certificate of the server first.
    pub(super) chain: String,
    /// The private key in PEM.
    pub(super) key: String,
}

/// The names and the expiry of the first certificate of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CertificateFacts {
    /// The DNS names and IP addresses for which the certificate is valid.
    pub(super) names: BTreeSet<String>,
    /// The time at which the certificate expires.
    pub(super) expires: Timestamp,
}

/// The reason why a certificate cannot be used or generated.
#[derive(Debug, thiserror::Error)]
pub(super) enum CertificateError {
    /// There is no certificate in PEM.
    #[error("there is no certificate in PEM")]
    NoCertificate,
    /// There is no private key in PEM.
    #[error("there is no private key in PEM")]
    NoKey,
    /// The certificate cannot be parsed.
    #[error("the certificate cannot be parsed")]
    Unparsable,
    /// The TLS library rejects the certificate or the key, or they do not belong together.
    #[error("the certificate and the key cannot be used together")]
    Unusable(#[source] rustls::Error),
    /// The certificate cannot be generated.
    #[error("generate a certificate")]
    Generate(#[source] rcgen::Error),
}

impl PemIdentity {
    /// Generates a self-signed certificate for these DNS names and IP addresses, which expires after `lifetime`.
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
        Ok(Self { chain: certificate.pem(), key: key.serialize_pem() })
    }

    /// Returns the names and the expiry of the first certificate of the chain.
    pub(super) fn facts(&self) -> Result<CertificateFacts, CertificateError> {
        let first = CertificateDer::from_pem_slice(self.chain.as_bytes())
            .map_err(|_| CertificateError::NoCertificate)?;
        let (_, certificate) = X509Certificate::from_der(&first).map_err(|_| CertificateError::Unparsable)?;
        let expires = certificate.validity().not_after.timestamp();
        let expires = Timestamp::from_second(expires).map_err(|_| CertificateError::Unparsable)?;
        let names = certificate.subject_alternative_name().map_err(|_| CertificateError::Unparsable)?;
        let names = names.iter().flat_map(|names| &names.value.general_names).filter_map(name);
        Ok(CertificateFacts { names: names.collect(), expires })
    }

    /// Returns the certificate and the key in the form of the TLS library. Fails if the two do not belong together.
    pub(super) fn to_certified_key(&self) -> Result<Arc<CertifiedKey>, CertificateError> {
        let chain = CertificateDer::pem_slice_iter(self.chain.as_bytes()).collect::<Result<Vec<_>, _>>();
        let chain = chain.ok().filter(|chain| !chain.is_empty()).ok_or(CertificateError::NoCertificate)?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(|_| CertificateError::NoKey)?;
        let provider = rustls::crypto::ring::default_provider();
        CertifiedKey::from_der(chain, key, &provider).map(Arc::new).map_err(CertificateError::Unusable)
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
        let identity = PemIdentity::generate(&names(), now, day).unwrap();
        let facts = identity.facts().unwrap();
        assert_eq!(facts.names, names());
        assert_eq!(facts.expires, now + day);
        identity.to_certified_key().unwrap();
    }

    #[test]
    fn a_key_of_another_certificate_is_rejected_and_not_shown() {
        let generate = || PemIdentity::generate(&names(), Timestamp::now(), Duration::from_secs(60)).unwrap();
        let (one, other) = (generate(), generate());
        let mixed = PemIdentity { chain: one.chain.clone(), key: other.key.clone() };
        assert!(matches!(mixed.to_certified_key(), Err(CertificateError::Unusable(_))));
        let swapped = PemIdentity { chain: one.key.clone(), key: one.chain.clone() };
        assert!(matches!(swapped.to_certified_key(), Err(CertificateError::NoCertificate)));
        assert!(matches!(swapped.facts(), Err(CertificateError::NoCertificate)));
        let keyless = PemIdentity { chain: one.chain, key: String::new() };
        assert!(matches!(keyless.to_certified_key(), Err(CertificateError::NoKey)));
    }
}
