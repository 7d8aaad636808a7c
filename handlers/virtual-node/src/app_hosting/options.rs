//! The section `[app_hosting]`.

use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU64;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::entry::DeviceEntry;
use crate::kubelet::{KubeletOptions, KubeletWords};

/// The handler `app_hosting`: devices that host pods, each a node of the cluster.
///
/// Devices are specified here, in files, and, if the API server serves the kind, by `CiscoDevice` objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(bound = "S: JsonSchema + Serialize")]
pub struct AppHostingOptions<S = Map<String, Value>> {
    /// YAML files that specify devices: one device under `device:`, as in Cisco's provider, or a list under `devices:`,
    /// each with a `name` for its node. The files are read at the start.
    #[schemars(extend("uniqueItems" = true))]
    pub device_files: Vec<PathBuf>,
    /// Devices that are specified here, in the form of an entry of `devices:` in a file:
    /// `devices = [{ name = "edge-1", passwordFile = "/run/edge-1", device = { address = "192.0.2.1", username = "admin" } }]`,
    /// or one table `[[app_hosting.devices]]` per device. `config show` never prints this list, because an entry may
    /// contain a password.
    #[schemars(extend("x-secret" = true))]
    pub devices: Vec<DeviceEntry<S>>,
    /// The addresses that a `CiscoDevice` may have: IP addresses, networks such as `192.0.2.0/24`, host names, and domains
    /// such as `.example.com` for all names in them. By default none: the controller sends credentials there.
    #[schemars(extend("uniqueItems" = true))]
    pub allowed_addresses: Vec<String>,
    /// The prefixes of the keys of node labels that a `CiscoDevice` may set, by default none. Keys of the domains
    /// `kubernetes.io` and `k8s.io`, such as `node-role.kubernetes.io/`, are never allowed.
    #[schemars(extend("uniqueItems" = true))]
    pub allowed_label_prefixes: Vec<String>,
    /// The folder of the certificate and key files that a `CiscoDevice` may name (`caFile`, `certFile`, `keyFile`). If
    /// not set, it may name none.
    #[schemars(length(min = 1), example = "/etc/staffetta-devices")]
    pub certificate_folder: Option<PathBuf>,
    /// The namespaces whose pods may use Secrets in their environment on devices, by default none. The controller needs
    /// the right to read Secrets in each of them.
    #[schemars(extend("uniqueItems" = true))]
    pub secret_namespaces: Vec<String>,
    /// The interval at which the workloads of a device are read, in milliseconds. One read returns the workloads of all
    /// its pods.
    pub poll_interval_ms: NonZeroU64,
    /// The interval at which the health of a device (its information and resources) is read, in milliseconds.
    pub health_interval_ms: NonZeroU64,
    /// The time limit of a read of a device, in milliseconds.
    pub read_timeout_ms: NonZeroU64,
    /// The time since the last answer of a device after which its node becomes not ready, in milliseconds, if at least
    /// two reads have failed. A device that was never reached, or that refuses the credentials, is not ready at once.
    pub unreachable_after_ms: u64,
    /// The time for which an application on a device must have had no pod before it is removed, in milliseconds. Only
    /// applications with the ownership labels of this cluster are removed.
    pub orphan_grace_ms: u64,
    /// Serve the kubelet API of each node: `kubectl logs` and `exec` get an error that names the limitation. Clients that
    /// the API server authorizes, by a client certificate or a bearer token, get `/pods`, `/stats/summary` and
    /// `/metrics/resource`.
    pub kubelet: bool,
    /// The IP address on which the kubelet APIs listen, with one port per node.
    #[schemars(extend("format" = "ip"))]
    pub kubelet_listen: IpAddr,
    /// The IP address at which the API server reaches the kubelet APIs, which is the `InternalIP` of the nodes. If
    /// absent, that of `kubelet_listen`.
    #[schemars(extend("format" = "ip"), example = "192.0.2.10")]
    pub kubelet_address: Option<IpAddr>,
    /// The port of the first node; each further node gets the next free port. With 0, the operating system chooses each
    /// port.
    pub kubelet_first_port: u16,
    /// A PEM file with the certificate chain of the kubelet APIs. If absent, a self-signed certificate is generated at
    /// each start, which API servers that verify kubelets reject.
    #[schemars(length(min = 1), example = "/etc/staffetta/kubelet.crt")]
    pub kubelet_certificate_file: Option<PathBuf>,
    /// A PEM file with the private key of `kubelet_certificate_file`.
    #[schemars(length(min = 1), example = "/etc/staffetta/kubelet.key")]
    pub kubelet_key_file: Option<PathBuf>,
    /// A PEM file with the CA of client certificates, such as that of the API server's kubelet client. The common name is
    /// the user, the organizations are its groups. Without it, clients need a bearer token.
    #[schemars(length(min = 1), example = "/etc/kubernetes/pki/ca.crt")]
    pub kubelet_client_ca_file: Option<PathBuf>,
}

impl<S> Default for AppHostingOptions<S> {
    fn default() -> Self {
        let count = |number| NonZeroU64::new(number).expect("the defaults are not zero");
        Self {
            device_files: Vec::new(),
            devices: Vec::new(),
            allowed_addresses: Vec::new(),
            allowed_label_prefixes: Vec::new(),
            certificate_folder: None,
            secret_namespaces: Vec::new(),
            poll_interval_ms: count(5000),
            health_interval_ms: count(60_000),
            read_timeout_ms: count(30_000),
            unreachable_after_ms: 15_000,
            orphan_grace_ms: 60_000,
            kubelet: true,
            kubelet_listen: Ipv4Addr::LOCALHOST.into(),
            kubelet_address: None,
            kubelet_first_port: 0,
            kubelet_certificate_file: None,
            kubelet_key_file: None,
            kubelet_client_ca_file: None,
        }
    }
}

impl AppHostingOptions {
    /// Returns the options of the kubelet APIs; `None` if they are disabled.
    pub(super) fn kubelets(&self) -> Option<KubeletOptions> {
        let certificate = self.kubelet_certificate_file.clone().zip(self.kubelet_key_file.clone());
        self.kubelet.then(|| KubeletOptions {
            listen: self.kubelet_listen,
            address: self.kubelet_address.unwrap_or(self.kubelet_listen),
            first_port: self.kubelet_first_port,
            certificate,
            client_authority: self.kubelet_client_ca_file.clone(),
            words: KubeletWords { machine: "device", client_authority: "app_hosting.kubelet_client_ca_file" },
        })
    }

    /// Returns a message about the first conflict between options, or invalid entry of a list; `None` if there is none.
    pub fn contradiction(&self) -> Option<String> {
        if self.kubelet_certificate_file.is_some() != self.kubelet_key_file.is_some() {
            return Some(
                "`app_hosting.kubelet_certificate_file` and `app_hosting.kubelet_key_file` are set together or not at all".to_owned(),
            );
        }
        let address = self.kubelet_address.unwrap_or(self.kubelet_listen);
        let unreachable = (self.kubelet && address.is_unspecified())
            .then_some("`app_hosting.kubelet_address` must say where the API server reaches the kubelet APIs, because `app_hosting.kubelet_listen` is every address");
        unreachable.map(str::to_owned).or_else(|| self.invalid_entry())
    }
}
