//! The pod and the interface that a command is about, from the arguments of the command.

use std::path::PathBuf;

use staffetta_cni::error::{CniError, Code};
use staffetta_cni::message::CniRequest;

/// The pod and the interface that a command is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodTarget {
    /// The namespace of the pod.
    pub(crate) namespace: String,
    /// The name of the pod.
    pub(crate) name: String,
    /// The UID of the pod, or of its manifest if it is a static pod; `None` if the runtime does not tell it.
    pub(crate) uid: Option<String>,
    /// The id of the pod's sandbox.
    pub(crate) container_id: String,
    /// The file of the network namespace; empty if the runtime names none, or none that [`is_namespace`] accepts.
    pub(crate) netns: PathBuf,
    /// The name of the interface in the pod that gets the default VIF (`CNI_IFNAME`).
    pub(crate) interface: String,
}

impl PodTarget {
    /// Reads the arguments of a command. Anybody who can reach the socket may have written them, so none becomes a part of a path without a
    /// check.
    pub(crate) fn read(request: &CniRequest) -> Result<Self, CniError> {
        let argument = |key: &str| {
            let value = request.argument(key).ok_or_else(|| {
                CniError::new(Code::InvalidEnvironment, "CNI_ARGS names no pod")
                    .details(format!("{key} is missing"))
            })?;
            plain(key, value)
        };
        if request.cni_ifname.is_empty() {
            return Err(CniError::new(Code::InvalidEnvironment, "CNI_IFNAME is not set"));
        }
        Ok(Self {
            namespace: argument("K8S_POD_NAMESPACE")?,
            name: argument("K8S_POD_NAME")?,
            uid: request.argument("K8S_POD_UID").map(|uid| plain("K8S_POD_UID", uid)).transpose()?,
            container_id: plain("CNI_CONTAINERID", &request.cni_containerid)?,
            netns: Some(&request.cni_netns)
                .filter(|path| is_namespace(path))
                .cloned()
                .unwrap_or_default()
                .into(),
            interface: request.cni_ifname.clone(),
        })
    }

    /// Returns the owner of what the command is about: the sandbox and the interface, by which the CNI specification identifies it.
    pub(crate) fn owner(&self) -> String {
        format!("{}/{}", self.container_id, self.interface)
    }

    /// Returns the pod in the form `default/web`, for messages.
    pub(crate) fn pod(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// Returns `true` if `path` is where container runtimes keep network namespaces: a file in a folder called `netns`, such as `/run/netns` or one
/// in the state of containerd, or the namespace of a process or thread in `/proc`. No other file is ever opened.
fn is_namespace(path: &str) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    match path.split('/').collect::<Vec<_>>()[..] {
        ["", "proc", process, "ns", "net"] => is_number(process),
        ["", "proc", process, "task", thread, "ns", "net"] => is_number(process) && is_number(thread),
        ["", "proc", ..] => false,
        ["", ref folders @ .., "netns", name] => {
            folders.iter().chain([&name]).all(|part| !matches!(*part, "" | "." | ".."))
        }
        _ => false,
    }
}

/// Returns `value`, that of the argument `name`. Fails unless it consists of at most 253 letters, digits, hyphens, dots and underscores,
/// and begins with a letter or digit.
fn plain(name: &str, value: &str) -> Result<String, CniError> {
    let is_plain = value.len() <= 253
        && value.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
        && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    if is_plain {
        return Ok(value.to_owned());
    }
    Err(CniError::new(Code::InvalidEnvironment, format!("{name} is missing or malformed")))
}
