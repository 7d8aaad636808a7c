//! The authority that signs the certificates of devices.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

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

    /// TLS for a device of this name at this address, and its certificate.
    pub(super) fn serve(
        &self,
        name: &str,
        address: IpAddr,
    ) -> io::Result<(Arc<ServerConfig>, CertificateDer<'static>)> {
        let names = [name.to_owned(), "localhost".to_owned(), address.to_string()];
        let mut params = CertificateParams::new(names).map_err(io::Error::other)?;
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(io::Error::other)?;
        let der = certificate.der().clone();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_no_client_auth()
            .with_single_cert(vec![der.clone()], key)
            .map_err(io::Error::other)?;
        Ok((Arc::new(config), der))
    }
}
