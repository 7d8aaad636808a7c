//! The kubelet API of virtual nodes, which the API server calls for logs, shells and metrics.
//!
//! Each node has a port of its own, because the API server distinguishes nodes of one address by their ports. Operations that no
//! such machine supports are answered with 501 and a sentence that `kubectl` shows, to any client. The data of pods is served
//! only to clients with a certificate that the configured CA signed.

mod answer;
mod serve;
mod stats;
mod tls;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use staffetta_driver::DriverError;
use tokio::net::TcpListener;
use tracing::warn;

use self::answer::{KubeletData, router};
use self::tls::KubeletCertificates;
use crate::counters::Counts;
use crate::machine::Machine;
use crate::pod::ClusterIndex;

/// The number of ports that are tried, from the first one on.
const TRIES: u16 = 4096;

/// The delay before a free port is looked for again.
const AGAIN: Duration = Duration::from_secs(60);

/// The address and certificates of kubelet APIs.
#[derive(Clone, Debug)]
pub struct KubeletOptions {
    /// The address on which they listen.
    pub listen: IpAddr,
    /// The address at which the API server reaches them.
    pub address: IpAddr,
    /// The port of the first node; 0 lets the system choose each.
    pub first_port: u16,
    /// A certificate and its key, in PEM; one is generated if absent.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// A PEM file with the CA certificates that verify client certificates. Without it, no client is authorized.
    pub client_authority: Option<PathBuf>,
    /// The wording of messages.
    pub words: KubeletWords,
}

/// The wording of messages about machines that are not kubelets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KubeletWords {
    /// The noun for such a machine, for example `device`.
    pub machine: &'static str,
    /// The option with the CA of authorized clients.
    pub client_authority: &'static str,
}

/// Errors of starting kubelet APIs.
#[derive(Debug, thiserror::Error)]
pub enum KubeletError {
    /// A file cannot be read.
    #[error("read {file}")]
    Read {
        /// The file.
        file: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A file does not contain the required data.
    #[error("{file} contains no usable {what}")]
    Malformed {
        /// The file.
        file: PathBuf,
        /// The required content.
        what: &'static str,
    },
    /// No certificate could be generated.
    #[error("generate a certificate")]
    Make(#[source] rcgen::Error),
    /// The certificate, the key and the CA do not match.
    #[error("the certificate, the key and the CA do not match")]
    Tls(#[source] rustls::Error),
}

/// Serves the kubelet APIs of nodes.
pub struct Kubelets {
    options: KubeletOptions,
    certificates: Arc<KubeletCertificates>,
}

impl Kubelets {
    /// Reads the certificates, or generates one. Nothing listens yet.
    pub fn new(options: KubeletOptions) -> Result<Self, KubeletError> {
        let certificates = Arc::new(KubeletCertificates::new(&options)?);
        Ok(Self { options, certificates })
    }

    /// Serves the kubelet API of one node, until it is dropped.
    pub(crate) async fn serve(
        &self,
        machine: &Arc<Machine>,
        cluster: &Arc<ClusterIndex>,
        counts: &Arc<Counts>,
    ) {
        loop {
            match self.listen().await {
                Ok((listener, endpoint)) => {
                    machine.set_kubelet_endpoint(Some(endpoint));
                    let (cluster, counts) = (Arc::clone(cluster), Arc::clone(counts));
                    let desk = KubeletData::new(Arc::clone(machine), cluster, counts, self.options.words);
                    serve::serve(listener, &self.certificates, &router(desk)).await;
                }
                Err(error) => {
                    warn!(node = &*machine.name, listen = %self.options.listen, first_port = self.options.first_port, %error,
                        "the kubelet API of a node cannot listen");
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    }

    /// The endpoint that a Node object already names, or the one at which its kubelet API would be served.
    pub(crate) fn expected(&self, node: Option<&Node>) -> Option<SocketAddr> {
        let KubeletOptions { address, first_port, .. } = &self.options;
        let endpoints = node.and_then(|node| node.status.as_ref()?.daemon_endpoints.as_ref());
        let port =
            endpoints.and_then(|endpoints| endpoints.kubelet_endpoint.as_ref()).map(|endpoint| endpoint.port);
        let port = port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port >= *first_port);
        let port = port.or(Some(*first_port).filter(|port| *port != 0))?;
        Some(SocketAddr::new(*address, port))
    }

    /// The first port that is free.
    async fn listen(&self) -> io::Result<(TcpListener, SocketAddr)> {
        let KubeletOptions { listen, address, first_port, .. } = &self.options;
        let ports = if *first_port == 0 { 0..=0 } else { *first_port..=first_port.saturating_add(TRIES) };
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

/// Reasons for missing resource usage.
#[derive(Debug, thiserror::Error)]
enum UsageUnavailable {
    #[error("the machine behind this node cannot be reached")]
    Down,
    #[error("the machine behind this node does not report it: {0}")]
    Driver(#[from] DriverError),
}

#[cfg(test)]
mod tests;
