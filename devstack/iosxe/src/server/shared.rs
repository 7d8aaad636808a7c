//! State shared by the handle of a device and its connections.

use std::net::SocketAddr;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::fault::Reachability;
use crate::machine::Machine;

/// A device, and how it can be reached.
pub(super) struct Shared {
    pub(super) machine: Mutex<Machine>,
    pub(super) reachability: watch::Sender<Reachability>,
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) name: String,
    /// Its certificate (DER), where it speaks TLS.
    pub(super) certificate: Option<Vec<u8>>,
    pub(super) at: SocketAddr,
    /// The runtime of its site.
    pub(super) handle: Handle,
}

impl Shared {}
