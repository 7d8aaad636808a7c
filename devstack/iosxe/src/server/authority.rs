//! The CA that signs the certificates of devices.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

/// A certificate authority that lives as long as its site.
pub(super) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    pub(super) fn new() -> io::Result<Self> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "devices of a simulated site");
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let issuer = CertifiedIssuer::self_signed(params, key).map_err(io::Error::other)?;
        let pem = issuer.pem();
        Ok(Self { issuer, pem })
    }

    pub(super) fn pem(&self) -> &str {
        &self.pem
    }

    /// A certificate and its key (PEM) for a client.
    pub(super) fn client(&self) -> io::Result<(String, String)> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "a client of devices");
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(io::Error::other)?;
        Ok((certificate.pem(), key.serialize_pem()))
    }

    /// TLS for a device of this name at this address, and its certificate. With `client_certificates` it is only for clients
    /// whose certificate comes from here.
    pub(super) fn serve(
        &self,
        name: &str,
        address: IpAddr,
        client_certificates: bool,
    ) -> io::Result<(Arc<ServerConfig>, CertificateDer<'static>)> {
        let names = [name.to_owned(), "localhost".to_owned(), address.to_string()];
        let mut params = CertificateParams::new(names).map_err(io::Error::other)?;
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(io::Error::other)?;
        let der = certificate.der().clone();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(ring::default_provider());
        let clients = if client_certificates {
            let mut roots = RootCertStore::empty();
            roots.add(self.issuer.der().clone()).map_err(io::Error::other)?;
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider));
            verifier.build().map_err(io::Error::other)?
        } else {
            WebPkiClientVerifier::no_client_auth()
        };
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_client_cert_verifier(clients)
            .with_single_cert(vec![der.clone()], key)
            .map_err(io::Error::other)?;
        Ok((Arc::new(config), der))
    }
}
