//! TLS: the authority of the site is to be trusted, and nobody else is.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use staffetta_iosxe_device::{Site, Tls};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::client::{Answer, Asking, CFG, device};

/// Asks over TLS, trusting the authority of `site` alone.
async fn asked(site: &Site, at: SocketAddr) -> io::Result<Answer> {
    asked_as(None, site, at).await
}

/// The same with a certificate and its key.
async fn asked_as(identity: Option<(String, String)>, site: &Site, at: SocketAddr) -> io::Result<Answer> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(site.authority().as_bytes()).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match identity {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            config.with_client_auth_cert(vec![certificate], key).unwrap()
        }
    };
    let stream = TcpStream::connect(at).await?;
    let name = ServerName::from(at.ip());
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    Asking::new("GET", CFG, &Value::Null).over(stream).await
}

#[tokio::test]
async fn who_trusts_the_authority_is_answered_and_who_does_not_is_not() {
    let (site, device) = device(|options| options.tls = Tls::Server);
    assert!(device.url().starts_with("https://") && device.certificate().is_some());
    assert_eq!(asked(&site, device.address()).await.unwrap().code, 204);
    let (other, _device) = crate::client::device(|_| ());
    asked(&other, device.address()).await.unwrap_err();
    let plain = TcpStream::connect(device.address()).await.unwrap();
    assert!(Asking::new("GET", CFG, &Value::Null).over(plain).await.is_err());
    assert_eq!(asked(&site, device.address()).await.unwrap().code, 204, "the others cost it nothing");
}

#[tokio::test]
async fn a_device_that_asks_for_a_certificate_answers_nobody_without_one_of_its_authority() {
    let (site, device) = device(|options| options.tls = Tls::Mutual);
    let at = device.address();
    asked(&site, at).await.unwrap_err();
    let (other, _device) = crate::client::device(|_| ());
    asked_as(Some(other.client_certificate().unwrap()), &site, at).await.unwrap_err();
    let own = site.client_certificate().unwrap();
    assert_eq!(asked_as(Some(own), &site, at).await.unwrap().code, 204);
}
