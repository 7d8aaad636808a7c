//! The specification of a virtual node, supplied by its `NodeSource`, and the health of the machine behind it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{NodeCondition, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// The key of the taint of virtual nodes. Pods without a toleration for it are not scheduled there.
pub const PROVIDER_TAINT: &str = "virtual-kubelet.io/provider";

/// The specification of a virtual node, supplied by its [`NodeSource`](crate::NodeSource).
#[derive(Clone, Debug, PartialEq)]
pub struct NodeSpec {
    /// The name of the node, a DNS subdomain (RFC 1123).
    pub name: String,
    /// Labels in addition to those that every virtual node has.
    pub labels: BTreeMap<String, String>,
    /// Annotations. Other annotations of the Node object stay as they are.
    pub annotations: BTreeMap<String, String>,
    /// Taints. Other taints of the Node object stay as they are.
    pub taints: Vec<Taint>,
    /// The maximum number of pods on the node.
    pub max_pods: u32,
    /// The IP address of the machine, which its pods have as `hostIP`; `None` if only [`NodeHealth::host_ip`] has it.
    pub host_ip: Option<IpAddr>,
    /// The address of type `Hostname`; `None` leaves it out, because an API server that prefers host names would have to
    /// resolve it.
    pub host_name: Option<String>,
    /// The address of the machine, as text. Another address means another machine: everything that was read from
    /// the former one is dropped.
    pub address: String,
    /// A number that identifies the parameters of the connection to the machine. When it changes, the connection is
    /// opened again.
    pub session: u64,
    /// `true` if the node is being removed from the cluster. No step for its pods is taken any more.
    pub retired: bool,
}

/// The resources and properties that a machine reports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeHealth {
    /// The total amount of each resource. The maximum number of pods is in the [`NodeSpec`].
    pub capacity: BTreeMap<String, Quantity>,
    /// The amount of each resource that pods of the cluster may use.
    pub allocatable: BTreeMap<String, Quantity>,
    /// The free and total memory; `None` if the machine does not report it.
    pub memory: Option<Room>,
    /// The free and total storage; `None` if the machine does not report it.
    pub storage: Option<Room>,
    /// The IP address of the machine, used if [`NodeSpec::host_ip`] is `None`; `None` if it is not known.
    pub host_ip: Option<IpAddr>,
    /// Versions and identifiers of the machine.
    pub info: MachineInfo,
    /// The reason (in CamelCase) and the message, if the machine is reachable but does not accept pods; `None` if it accepts them.
    pub problem: Option<(&'static str, String)>,
    /// Conditions that the machine reports. Each replaces the one of its type that the handler would write, while the
    /// machine can be reached. Their times are not used.
    pub conditions: Vec<NodeCondition>,
}

/// The free and total amount of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// The free amount of the resource, in bytes.
    pub free: u64,
    /// The total amount of the resource, in bytes.
    pub all: u64,
}

impl Room {
    /// Returns `true` if less than a twentieth of the total amount is free.
    pub fn is_short(self) -> bool {
        u128::from(self.free) * 20 < u128::from(self.all)
    }
}

/// Versions and identifiers of a machine, as in the field `nodeInfo` of a node's status. Unknown values are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineInfo {
    /// The serial number of the machine, reported as `machineID` and `systemUUID`.
    pub machine_id: String,
    /// The version of the machine's operating system, reported as `kernelVersion`.
    pub kernel_version: String,
    /// The name of the machine's operating system, reported as `osImage`.
    pub os_image: String,
    /// The container runtime, with a scheme: `cisco://`. Reported as `containerRuntimeVersion`.
    pub container_runtime: String,
    /// The processor architecture of the machine's containers, as in the label `kubernetes.io/arch`: `amd64`.
    pub architecture: String,
    /// The operating system of the machine's containers, as in the label `kubernetes.io/os`: `linux`.
    pub operating_system: String,
}
