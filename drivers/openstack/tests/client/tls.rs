//! The certificates that the client trusts, and its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use staffetta_openstack::{
    Access, Auth, Cloud, CloudError, EndpointInterface, EndpointOverrides, OpenStackError, TlsOptions,
};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::world::Seen;

/// An authority, and a folder with what it signs.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Self { issuer, folder: tempfile::tempdir().unwrap() }
    }

    /// A certificate for that name, and its key.
    fn sign(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn ca_file(&self) -> PathBuf {
        self.file("ca.pem", &self.issuer.pem())
    }

    fn der(&self) -> CertificateDer<'static> {
        self.issuer.der().clone()
    }
}

/// A Neutron at `127.0.0.1` whose certificate `authority` signed, for everybody or for whom `clients` signed one. Answers its URL.
async fn neutron(authority: &Authority, clients: Option<&Authority>) -> String {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let builder = match clients {
        Some(clients) => {
            let mut roots = RootCertStore::empty();
            roots.add(clients.der()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
        None => builder.with_no_client_auth(),
    };
    let (certificate, key) = authority.sign("127.0.0.1");
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = builder.with_single_cert(vec![certificate.der().clone()], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut read = [0; 4096];
            if stream.read(&mut read).await.is_ok_and(|read| read > 0) {
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
                // Who did not come in time learns nothing.
                let _ = stream.write_all(answer).await;
                let _ = stream.shutdown().await;
            }
        }
    });
    url
}

fn cloud(url: &str, tls: TlsOptions) -> Result<Cloud, CloudError> {
    let urls = EndpointOverrides { network: Some(url.parse().unwrap()), load_balancer: None };
    let access = Access {
        auth: Auth::None,
        region: None,
        interface: EndpointInterface::Public,
        urls,
        tls,
        timeout: Duration::from_secs(60),
        max_concurrency: 4,
    };
    Cloud::new(access, Arc::new(Seen::default()))
}

async fn asked(url: &str, tls: TlsOptions) -> Result<(), OpenStackError> {
    cloud(url, tls).unwrap().network().get("look", "x").done().await
}

async fn refused(url: &str, tls: TlsOptions) {
    let error = asked(url, tls).await.unwrap_err();
    assert!(!error.ambiguous() && error.rejection().is_none(), "{error}");
}

#[tokio::test]
async fn only_a_service_is_believed_whose_authority_is_named() {
    let (authority, other) = (Authority::new(), Authority::new());
    let url = neutron(&authority, None).await;
    let by =
        |authority: &Authority| TlsOptions { ca_file: Some(authority.ca_file()), ..TlsOptions::default() };
    asked(&url, by(&authority)).await.unwrap();
    refused(&url, by(&other)).await;
    let error = asked(&url, TlsOptions::default()).await.unwrap_err();
    assert!(error.to_string().contains("cannot connect to"), "no authority of this system knows it: {error}");
    // Its name counts too.
    refused(&url.replace("127.0.0.1", "localhost"), by(&authority)).await;
}

#[test]
fn a_file_without_a_certificate_in_pem_form_is_refused_by_name() {
    let authority = Authority::new();
    let der = authority.folder.path().join("ca.der");
    std::fs::write(&der, authority.der()).unwrap();
    for path in [authority.file("empty.pem", ""), der] {
        let tls = TlsOptions { ca_file: Some(path.clone()), ..TlsOptions::default() };
        let error = cloud("https://127.0.0.1", tls).unwrap_err().to_string();
        assert!(error.contains(path.to_str().unwrap()) && error.contains("no certificates"), "{error}");
    }
}

#[tokio::test]
async fn anybody_is_believed_only_where_somebody_said_so() {
    let url = neutron(&Authority::new(), None).await;
    asked(&url, TlsOptions { insecure: true, ..TlsOptions::default() }).await.unwrap();
}

#[tokio::test]
async fn a_service_that_wants_to_know_who_comes_is_shown_the_certificate() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let url = neutron(&authority, Some(&clients)).await;
    let by_us = |by: &Authority, in_one_file: bool| {
        let (certificate, key) = by.sign("staffetta");
        let (certificate, key) = (certificate.pem(), key.serialize_pem());
        let both = format!("{certificate}{key}");
        TlsOptions {
            ca_file: Some(authority.ca_file()),
            certificate_file: Some(by.file("ours.pem", if in_one_file { &both } else { &certificate })),
            key_file: (!in_one_file).then(|| by.file("ours.key", &key)),
            insecure: false,
        }
    };
    for in_one_file in [true, false] {
        asked(&url, by_us(&clients, in_one_file)).await.unwrap();
    }
    for stranger in
        [by_us(&authority, true), TlsOptions { ca_file: Some(authority.ca_file()), ..TlsOptions::default() }]
    {
        asked(&url, stranger).await.unwrap_err();
    }
}
