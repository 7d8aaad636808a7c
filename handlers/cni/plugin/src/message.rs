//! The messages between the plugin and the daemon. The first two requests and their answers are those of Kuryr's daemon.
//!
//! | request | answer |
//! |---|---|
//! | `POST /addNetwork`, a [`CniRequest`] | 202 and the default VIF in the form of `os_vif`; 400, 410, 504 or 500 and a [`CniError`](crate::error::CniError) |
//! | `POST /delNetwork`, a [`CniRequest`] | 204; 400 or 500 and an error |
//! | `POST /checkNetwork`, a [`CniRequest`] | 204; 400, 410 or 500 and an error |
//! | `POST /status`, an empty object | 204; 503 and an error |
//! | `POST /gc`, a [`ValidAttachments`] | 204; 500 and an error |

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The socket of the daemon, unless the configuration names another.
pub const DEFAULT_SOCKET: &str = "/run/staffetta/cni.sock";
/// The maximum size of the configuration of the plugin, of a request to the daemon and of its answer, in bytes.
pub const MAX_MESSAGE: usize = 1 << 20;

/// The request of the plugin to the daemon to run a command for one interface of one container: the variables that the CNI specification
/// defines, and the configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE", default)]
pub struct CniRequest {
    /// The name of the command: `ADD`, `DEL` or `CHECK`.
    pub cni_command: String,
    /// The id of the container (in Kubernetes, of the pod's sandbox).
    pub cni_containerid: String,
    /// The file of the network namespace; may be empty when an interface is deleted.
    pub cni_netns: String,
    /// The name of the interface in the container.
    pub cni_ifname: String,
    /// Further arguments, such as
    /// `IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web;K8S_POD_UID=...`.
    pub cni_args: String,
    /// The folders with CNI plugins (`CNI_PATH`), separated by colons.
    pub cni_path: String,
    /// The configuration of the plugin.
    #[serde(rename = "config_kuryr")]
    pub config: Value,
}

impl CniRequest {
    /// Returns the value of the argument `key`; `None` if it is missing or empty.
    pub fn argument(&self, key: &str) -> Option<&str> {
        let mut pairs = self.cni_args.split(';').filter_map(|pair| pair.split_once('='));
        pairs.find(|(name, value)| *name == key && !value.is_empty()).map(|(_, value)| value)
    }
}

/// The interfaces that still exist according to the container runtime (`GC` of the specification).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValidAttachments {
    /// The interfaces that still exist.
    #[serde(rename = "cni.dev/valid-attachments")]
    pub valid: Vec<ValidAttachment>,
}

/// An interface of a container that still exists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValidAttachment {
    /// The id of the container.
    #[serde(rename = "containerID")]
    pub container_id: String,
    /// The name of the interface in the container.
    pub ifname: String,
}
