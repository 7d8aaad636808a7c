//! The kubelet API of virtual nodes, which the API server calls for `kubectl logs` and `exec`, and metrics collectors
//! for resource usage.
//!
//! Each node has its own port, because the API server distinguishes nodes with the same address by their ports.
//! Clients authenticate with a certificate signed by the configured CA or with a bearer token, and are authorized by the
//! API server, as with a kubelet. Operations that the machines do not support (logs, exec, attach, port forwarding) are
//! answered with the status 501 and a message that `kubectl` shows, also without a credential.

mod answer;
mod authorization;
mod serve;
mod stats;
mod tls;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::Client;
use tokio::net::TcpListener;
use tracing::warn;

use self::answer::{KubeletData, router};
use self::tls::KubeletCertificates;
use crate::counters::Counts;
use crate::machine::Machine;
use crate::pod::ClusterIndex;

/// The number of ports after the first one that are tried, until one is free.
const PORT_RANGE: u16 = 4096;

/// The delay before the next attempt to listen, after one that failed.
const LISTEN_RETRY: Duration = Duration::from_secs(60);

/// The addresses, ports and certificates of the kubelet APIs.
#[derive(Clone, Debug)]
pub struct KubeletOptions {
    /// The address on which the kubelet APIs listen.
    pub listen: IpAddr,
    /// The address at which the API server reaches the kubelet APIs.
    pub address: IpAddr,
    /// The lowest port. Each node gets the lowest port from there on that is free; with 0, the operating system chooses
    /// a port for each node.
    pub first_port: u16,
    /// The files of the certificate chain and of its private key, in PEM. Without them, a self-signed certificate is
    /// generated.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// A PEM file with the CA certificates that verify client certificates. Without it, clients need bearer tokens.
    pub client_authority: Option<PathBuf>,
    /// The words that depend on the kind of machine, for messages.
    pub words: KubeletWords,
}

/// The words in messages of the kubelet API that depend on the kind of machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KubeletWords {
    /// The noun for a machine, for example `device`.
    pub machine: &'static str,
    /// The name of the configuration option with the CA of authorized clients, for example
    /// `app_hosting.kubelet_client_ca_file`.
    pub client_authority: &'static str,
}

/// Errors of preparing the certificates of the kubelet APIs.
#[derive(Debug, thiserror::Error)]
pub enum KubeletError {
    /// A certificate or key file cannot be read.
    #[error("read {file}")]
    Read {
        /// The path of the certificate or key file.
        file: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A file contains no certificate or key, or is larger than 1 MiB.
    #[error("{file} contains no usable {what}")]
    Malformed {
        /// The path of the certificate or key file.
        file: PathBuf,
        /// The expected content: certificate, CA certificate or key.
        what: &'static str,
    },
    /// The self-signed certificate could not be generated.
    #[error("generate a certificate")]
    Make(#[source] rcgen::Error),
    /// The TLS library rejects the certificate, the key or the CA: they are invalid, or do not match.
    #[error("the certificate, the key and the CA do not match")]
    Tls(#[source] rustls::Error),
}

/// The servers of the nodes' kubelet APIs. All share the same certificates.
pub struct Kubelets {
    options: KubeletOptions,
    certificates: Arc<KubeletCertificates>,
}

impl Kubelets {
    /// Reads the certificates from the configured files, or generates a self-signed one. No port is opened before the
    /// handler runs. Returns an error if a file cannot be read, or if its content cannot be used.
    pub fn new(options: KubeletOptions) -> Result<Self, KubeletError> {
        let certificates = Arc::new(KubeletCertificates::new(&options)?);
        Ok(Self { options, certificates })
    }

    /// Listens on a free port and serves the kubelet API of one node there, until the returned future is dropped. If
    /// listening fails, for example because no port is free, another attempt is made after a minute.
    pub(crate) async fn serve(
        &self,
        machine: &Arc<Machine>,
        cluster: &Arc<ClusterIndex>,
        counts: &Arc<Counts>,
        client: &Client,
    ) {
        loop {
            match self.listen().await {
                Ok((listener, endpoint)) => {
                    machine.set_kubelet_endpoint(Some(endpoint));
                    let (cluster, counts) = (Arc::clone(cluster), Arc::clone(counts));
                    let (words, client) = (self.options.words, client.clone());
                    let data = KubeletData::new(Arc::clone(machine), cluster, counts, words, client);
                    match serve::serve(listener, &self.certificates, &router(data)).await {}
                }
                Err(error) => {
                    warn!(node = &*machine.name, listen = %self.options.listen, first_port = self.options.first_port, %error,
                        "the kubelet API of a node cannot listen");
                    tokio::time::sleep(LISTEN_RETRY).await;
                }
            }
        }
    }

    /// Returns the endpoint in the status of the Node object, or else the first endpoint at which its kubelet API could
    /// be served; `None` if the port is chosen by the operating system. For dry runs, which open no port.
    pub(crate) fn expected(&self, node: Option<&Node>) -> Option<SocketAddr> {
        let KubeletOptions { address, first_port, .. } = &self.options;
        let first = || Some(*first_port).filter(|port| *port != 0);
        let known = node.and_then(|node| self.known(node));
        known.or_else(|| Some(SocketAddr::new(*address, first()?)))
    }

    /// Returns the endpoint in the status of the Node object; `None` if it has none that these options allow.
    pub(crate) fn known(&self, node: &Node) -> Option<SocketAddr> {
        let KubeletOptions { address, first_port, .. } = &self.options;
        let endpoints = node.status.as_ref()?.daemon_endpoints.as_ref()?;
        let port = u16::try_from(endpoints.kubelet_endpoint.as_ref()?.port).ok()?;
        (port >= *first_port).then(|| SocketAddr::new(*address, port))
    }

    /// Listens on the first free port. Returns the listener, and the endpoint for the API server.
    async fn listen(&self) -> io::Result<(TcpListener, SocketAddr)> {
        let KubeletOptions { listen, address, first_port, .. } = &self.options;
        let ports =
            if *first_port == 0 { 0..=0 } else { *first_port..=first_port.saturating_add(PORT_RANGE) };
        let mut last = io::Error::from(io::ErrorKind::AddrInUse);
        for port in ports {
            match TcpListener::bind(SocketAddr::new(*listen, port)).await {
                Ok(listener) => {
                    let port = listener.local_addr()?.port();
                    return Ok((listener, SocketAddr::new(*address, port)));
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }
}

#[cfg(test)]
mod tests;
