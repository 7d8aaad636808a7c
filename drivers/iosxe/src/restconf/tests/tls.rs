//! Tests of the authentication of devices.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use ring::digest::{SHA256, digest};
use rustls::ServerConfig;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;

use super::*;

/// A device with a certificate for `127.0.0.1`, and the CA that signed it.
struct Device {
    port: u16,
    certificate: CertificateDer<'static>,
    authority: tempfile::NamedTempFile,
}

async fn device() -> Device {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap().der().clone();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), authority.pem()).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![certificate.clone()], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut read = [0; 4096];
                // Whatever is asked, there is nothing.
                while stream.read(&mut read).await.is_ok_and(|read| read > 0) {
                    let document = "<Link rel='restconf' href='/api'/>";
                    let length = document.len();
                    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{document}");
                    if stream.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    Device { port, certificate, authority: file }
}

async fn reaches(device: &Device, tls: TlsSpec) -> bool {
    let client = client_at("127.0.0.1", device.port, TlsSpec { enabled: true, ..tls }, 60_000);
    match get(&client).await {
        Ok(_) => true,
        Err(error) => {
            assert!(error.reason() == Reason::Unavailable && !error.ambiguous(), "{error}");
            false
        }
    }
}

fn pinned(pin: &str) -> TlsSpec {
    TlsSpec { certificate_sha256: Some(pin.into()), ..TlsSpec::default() }
}

#[tokio::test]
async fn a_device_is_known_by_an_authority_that_was_named() {
    let (other, device) = (device().await, device().await);
    let by =
        |file: &tempfile::NamedTempFile| TlsSpec { ca_file: Some(file.path().into()), ..TlsSpec::default() };
    assert!(reaches(&device, by(&device.authority)).await);
    assert!(!reaches(&device, by(&other.authority)).await);
    assert!(!reaches(&device, TlsSpec::default()).await, "no authority of this system knows it");
}

#[tokio::test]
async fn a_device_is_known_by_the_digest_of_its_certificate_however_it_is_written() {
    let device = device().await;
    let hex: Vec<_> =
        digest(&SHA256, &device.certificate).as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
    assert!(reaches(&device, pinned(&hex.join(":"))).await);
    assert!(reaches(&device, pinned(&hex.concat().to_lowercase())).await);
    assert!(!reaches(&device, pinned(&"00".repeat(32))).await);
    let wrong = TlsSpec { enabled: true, ..pinned(&"00".repeat(32)) };
    let error = get(&client_at("127.0.0.1", device.port, wrong, 60_000)).await.unwrap_err();
    let text = format!("{error:?}");
    assert!(text.contains("tls.certificateSha256") && text.contains(&hex.concat().to_lowercase()), "{text}");
}

#[tokio::test]
async fn anybody_passes_for_a_device_only_where_somebody_said_so() {
    let device = device().await;
    assert!(reaches(&device, TlsSpec { insecure_skip_verify: true, ..TlsSpec::default() }).await);
}

fn refusal(spec: &TlsSpec) -> String {
    super::super::tls::config(spec).unwrap_err().to_string()
}

#[test]
fn only_a_file_with_a_certificate_in_it_and_of_a_bounded_size_is_read() {
    let (empty, large) = (tempfile::NamedTempFile::new().unwrap(), tempfile::NamedTempFile::new().unwrap());
    large.as_file().set_len((1 << 20) + 1).unwrap();
    for (file, why) in [
        (empty.path(), "contains no certificate"),
        (large.path(), "has more than 1048576 bytes"),
        ("/dev/null".as_ref(), "is not a regular file"),
    ] {
        let file = Some(file.to_owned());
        let by_authority = TlsSpec { enabled: true, ca_file: file.clone(), ..TlsSpec::default() };
        let reported = refusal(&by_authority);
        assert!(reported.contains(&format!("tls.caFile: {why}")), "{reported}");
        let (cert_file, key_file) = (file.clone(), file);
        let reported = refusal(&TlsSpec { enabled: true, cert_file, key_file, ..TlsSpec::default() });
        assert!(reported.contains(&format!("tls.certFile: {why}")), "{reported}");
    }
}

#[test]
fn what_would_be_dropped_without_a_word_is_refused_by_path_and_no_file_is_looked_at() {
    let (pin, nowhere) = (Some("00".repeat(32)), Some("/nowhere.pem".into()));
    let none = TlsSpec::off();
    for off in [
        TlsSpec { certificate_sha256: pin.clone(), ..none.clone() },
        TlsSpec { ca_file: nowhere.clone(), ..none.clone() },
        TlsSpec { insecure_skip_verify: true, ..none.clone() },
        TlsSpec { cert_file: nowhere.clone(), key_file: nowhere.clone(), ..none.clone() },
    ] {
        let reported = refusal(&off);
        assert!(reported.contains("tls.enabled: TLS must be on where `tls."), "{reported}");
    }
    let on = TlsSpec { enabled: true, ..none };
    for (both, path) in [
        (
            TlsSpec { certificate_sha256: pin.clone(), insecure_skip_verify: true, ..on.clone() },
            "insecureSkipVerify",
        ),
        (
            TlsSpec { ca_file: nowhere.clone(), insecure_skip_verify: true, ..on.clone() },
            "insecureSkipVerify",
        ),
        (TlsSpec { certificate_sha256: pin, ca_file: nowhere, ..on }, "caFile"),
    ] {
        let reported = refusal(&both);
        assert!(reported.contains(&format!("tls.{path}: `tls.")), "{reported}");
    }
}
