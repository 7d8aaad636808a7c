//! TLS connections to devices: verifies them by CA certificates or by one pinned certificate, and presents
//! the client certificate.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring as crypto, verify_tls12_signature, verify_tls13_signature};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use staffetta_driver::app_hosting::TlsSpec;
use staffetta_driver::{DriverError, Reason};

/// The preparation of TLS, as errors name it.
const STEP: &str = "prepare TLS to the device";

/// The length of a SHA-256 digest, in bytes.
const DIGEST: usize = 32;

/// The maximum size of a certificate or key file, in bytes: about four times that of all public CA certificates.
const MAX_FILE: u64 = 1 << 20;

/// Builds the TLS configuration for a device. Returns an error if options contradict
/// each other, or if a file cannot be used.
pub(super) fn config(spec: &TlsSpec) -> Result<ClientConfig, DriverError> {
    check(spec)?;
    let provider = Arc::new(crypto::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder
        .with_safe_default_protocol_versions()
        .map_err(|error| DriverError::new(Reason::Refused, STEP).because(error))?;
    let builder = if let Some(pin) = &spec.certificate_sha256 {
        let pin = fingerprint(pin);
        let pin = pin.ok_or_else(|| refused("tls.certificateSha256", "must have 64 hexadecimal digits"))?;
        let verifier = CertificateVerifier { pin: Some(pin), provider };
        builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
    } else if spec.insecure_skip_verify {
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(CertificateVerifier { pin: None, provider }))
    } else {
        builder.with_root_certificates(authorities(spec)?)
    };
    match (&spec.cert_file, &spec.key_file) {
        (None, None) => Ok(builder.with_no_client_auth()),
        (Some(certificates), Some(key)) => {
            let chain = certificates_in(certificates, "tls.certFile")?;
            let key = PrivateKeyDer::from_pem_slice(&content(key, "tls.keyFile")?)
                .map_err(|error| unreadable("tls.keyFile", error))?;
            builder.with_client_auth_cert(chain, key).map_err(|error| unreadable("tls.certFile", error))
        }
        (Some(_), None) => Err(refused("tls.keyFile", "required, because `tls.certFile` is set")),
        (None, Some(_)) => Err(refused("tls.certFile", "required, because `tls.keyFile` is set")),
    }
}

/// Refuses options that would have no effect: any TLS option while TLS is off, and more than one way to verify the
/// device.
fn check(spec: &TlsSpec) -> Result<(), DriverError> {
    let ways = [
        ("tls.certificateSha256", spec.certificate_sha256.is_some()),
        ("tls.caFile", spec.ca_file.is_some()),
        ("tls.insecureSkipVerify", spec.insecure_skip_verify),
    ];
    let ours = [("tls.certFile", spec.cert_file.is_some()), ("tls.keyFile", spec.key_file.is_some())];
    if let Some((key, _)) = ways.iter().chain(&ours).find(|(_, there)| *there && !spec.enabled) {
        let why =
            format!("TLS must be on where `{key}` is set: without it the password is sent in clear text");
        return Err(refused("tls.enabled", &why));
    }
    let mut ways = ways.iter().filter(|(_, there)| *there);
    match (ways.next(), ways.next()) {
        (Some((one, _)), Some((other, _))) => {
            Err(refused(other, &format!("`{one}` already selects how the device is verified")))
        }
        _ => Ok(()),
    }
}

/// Returns the CA certificates that verify the device: those in the file of the specification, or else those of the
/// operating system.
fn authorities(spec: &TlsSpec) -> Result<Arc<RootCertStore>, DriverError> {
    let Some(file) = &spec.ca_file else {
        let unused = || Arc::new(RootCertStore::empty());
        return Ok(if spec.enabled { authorities_of_this_system() } else { unused() });
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates_in(file, "tls.caFile")? {
        roots.add(certificate).map_err(|error| unreadable("tls.caFile", error))?;
    }
    Ok(Arc::new(roots))
}

/// Returns the CA certificates of the operating system. They are read once, and shared by all devices.
fn authorities_of_this_system() -> Arc<RootCertStore> {
    static AUTHORITIES: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    let read = || {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Arc::new(roots)
    };
    Arc::clone(AUTHORITIES.get_or_init(read))
}

/// Returns the certificates in a file. Returns an error if there are none.
fn certificates_in(file: &Path, field: &str) -> Result<Vec<CertificateDer<'static>>, DriverError> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&content(file, field)?).collect();
    let certificates = certificates.map_err(|error| unreadable(field, error))?;
    if certificates.is_empty() {
        return Err(refused(field, "contains no certificate"));
    }
    Ok(certificates)
}

/// Reads a file. Only regular files of at most [`MAX_FILE`] bytes are accepted, because the path comes from the device
/// specification.
fn content(file: &Path, field: &str) -> Result<Vec<u8>, DriverError> {
    let about = fs::metadata(file).map_err(|error| unreadable(field, error))?;
    if !about.is_file() {
        return Err(refused(field, "is not a regular file"));
    }
    if about.len() > MAX_FILE {
        return Err(refused(field, &format!("has more than {MAX_FILE} bytes")));
    }
    let mut content = Vec::new();
    let read = File::open(file).and_then(|file| file.take(about.len()).read_to_end(&mut content));
    read.map_err(|error| unreadable(field, error))?;
    Ok(content)
}

/// Parses a SHA-256 digest: 64 hexadecimal digits, with or without colons. `None` if the text is malformed.
fn fingerprint(text: &str) -> Option<[u8; DIGEST]> {
    let digits: Option<Vec<u32>> = text.chars().filter(|c| *c != ':').map(|c| c.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len() == 2 * DIGEST)?;
    let mut bytes = [0; DIGEST];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::try_from(pair[0] * 16 + pair[1]).ok()?;
    }
    Some(bytes)
}

/// Returns the error of an option that cannot be used.
fn refused(field: &str, why: &str) -> DriverError {
    DriverError::new(Reason::Refused, STEP).detail(format!("{field}: {why}"))
}

/// Returns the error of a file that cannot be read or parsed.
fn unreadable(field: &str, error: impl std::error::Error + Send + Sync + 'static) -> DriverError {
    refused(field, "cannot be used").because(error)
}

/// The verifier of a device's certificate: accepts only the one with the SHA-256 digest `pin`, or any if `pin` is `None`. The
/// device must prove in either case that it has the private key.
#[derive(Debug)]
struct CertificateVerifier {
    pin: Option<[u8; DIGEST]>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for CertificateVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let shown = ring::digest::digest(&ring::digest::SHA256, end_entity.as_ref());
        match self.pin {
            Some(pin) if shown.as_ref() != pin => {
                let shown =
                    shown.as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
                Err(Error::General(format!(
                    "tls.certificateSha256 is not that of the certificate shown, {shown}"
                )))
            }
            _ => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
