//! The options of the daemon of the CNI plugin.

use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use staffetta_cni::message::DEFAULT_SOCKET;

/// The daemon of the CNI plugin on each node (`staffetta cni-daemon`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CniDaemonOptions {
    /// The name of the node. The daemon needs it, usually from `spec.nodeName` of its own pod, in the variable
    /// `STAFFETTA_CNI_DAEMON__NODE_NAME`.
    #[schemars(length(min = 1, max = 253), example = &"node-1")]
    pub node_name: Option<String>,
    /// The socket of the daemon: the absolute path of a Unix socket, or an address of the loopback interface with a port. Only root may use
    /// either.
    #[schemars(with = "String", length(min = 1), example = &"127.0.0.1:5036")]
    pub listen: Listen,
    /// The folder with a file for each bound pod. It must outlive the daemon; the files of an earlier boot are removed.
    #[schemars(length(min = 1))]
    pub state_folder: PathBuf,
    /// The time in seconds that a pod waits for its VIF, and then again for its port to be active, before the container runtime
    /// is told to try again.
    #[schemars(range(min = 1, max = 85))]
    pub vif_annotation_timeout: NonZeroU64,
    /// The file of the CNI configuration, which the daemon writes as soon as it is ready. If not set, none is written.
    #[schemars(length(min = 1), example = &"/etc/cni/net.d/05-staffetta.conflist")]
    pub conflist: Option<PathBuf>,
    /// The classes of the VIFs that this node binds, such as `VIFVlanNested`. If empty: those of `kubernetes.pod_vif_driver`, which are
    /// `VIFOpenVSwitch` and `VIFBridge` unless the driver is a nested one. List them if nodes have VIFs of several drivers.
    #[schemars(extend("uniqueItems" = true))]
    pub vif_classes: Vec<String>,
    /// The names of plugins that follow ours in the CNI configuration, such as `portmap` for host ports and `bandwidth` for the rates of
    /// pods. They must be where the container runtime finds plugins. Plugins that need a configuration of their own cannot be among
    /// them.
    pub chained_plugins: Vec<String>,
}

impl Default for CniDaemonOptions {
    fn default() -> Self {
        Self {
            node_name: None,
            listen: Listen::Unix(DEFAULT_SOCKET.into()),
            state_folder: "/var/lib/staffetta/cni".into(),
            vif_annotation_timeout: NonZeroU64::new(60).expect("60 is not zero"),
            conflist: None,
            vif_classes: Vec::new(),
            chained_plugins: Vec::new(),
        }
    }
}

/// The address at which the daemon listens for the CNI plugin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Listen {
    /// The path of a Unix socket.
    Unix(PathBuf),
    /// An address of the loopback interface.
    Tcp(SocketAddr),
}

/// The error of a value that is neither an absolute path nor an address of the loopback interface.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is neither an absolute path nor an address of the loopback interface such as 127.0.0.1:5036")]
pub struct ParseListenError(String);

impl FromStr for Listen {
    type Err = ParseListenError;

    fn from_str(text: &str) -> Result<Self, ParseListenError> {
        if text.starts_with('/') {
            return Ok(Self::Unix(text.into()));
        }
        let address = text.parse().ok().filter(|address: &SocketAddr| address.ip().is_loopback());
        address.map(Self::Tcp).ok_or_else(|| ParseListenError(text.to_owned()))
    }
}

impl TryFrom<String> for Listen {
    type Error = ParseListenError;

    fn try_from(text: String) -> Result<Self, ParseListenError> {
        text.parse()
    }
}

impl From<Listen> for String {
    fn from(listen: Listen) -> Self {
        match listen {
            Listen::Unix(path) => path.display().to_string(),
            Listen::Tcp(address) => address.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemon_listens_on_a_socket_or_on_loopback_only() {
        for text in ["/run/x.sock", "127.0.0.1:5036", "[::1]:5036"] {
            assert_eq!(String::from(text.parse::<Listen>().unwrap()), text);
        }
        for text in ["", "cni.sock", "0.0.0.0:5036", "192.0.2.1:5036", "127.0.0.1"] {
            assert_eq!(text.parse::<Listen>(), Err(ParseListenError(text.to_owned())));
        }
    }
}
