//! The specification of a virtual node, supplied by its `NodeSource`, and the health of its machine.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// The key of the taint that keeps away pods that do not tolerate a virtual node.
pub const PROVIDER_TAINT: &str = "virtual-kubelet.io/provider";

/// The specification of a virtual node, supplied by its [`NodeSource`](crate::NodeSource).
#[derive(Clone, Debug, PartialEq)]
pub struct NodeSpec {
    /// The name: a DNS subdomain.
    pub name: String,
    /// Labels beside those that every virtual node has.
    pub labels: BTreeMap<String, String>,
    /// Taints; others that the object has are left alone.
    pub taints: Vec<Taint>,
    /// The maximum number of pods.
    pub max_pods: u32,
    /// The machine's own address, which its pods have as `hostIP`; none where it must be found out ([`NodeHealth::host_ip`]).
    pub host_ip: Option<IpAddr>,
    /// The address of the machine. A changed address means another machine, of which nothing is known.
    pub address: String,
    /// Identifies the connection to the machine: when it changes, the connection is opened again.
    pub session: u64,
    /// `true` if the node is being removed from the cluster: nothing is done for its pods any more.
    pub retired: bool,
}

/// The capacity and information of a machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeHealth {
    /// The total capacity by resource; `pods` comes from the [`NodeSpec`].
    pub capacity: BTreeMap<String, Quantity>,
    /// The part of the capacity that pods may use.
    pub allocatable: BTreeMap<String, Quantity>,
    /// The free memory; `None` if not reported.
    pub memory: Option<Room>,
    /// The free storage; `None` if not reported.
    pub storage: Option<Room>,
    /// Its own address, if only the machine itself reports it.
    pub host_ip: Option<IpAddr>,
    /// Versions and identifiers of the machine.
    pub info: MachineInfo,
    /// The reason (in CamelCase) and message if the machine is reachable but takes no pods.
    pub problem: Option<(&'static str, String)>,
}

/// Free and total amounts of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// The free amount, in bytes.
    pub free: u64,
    /// All of it, in bytes.
    pub all: u64,
}

impl Room {
    /// Returns `true` if less than a twentieth is free.
    pub fn is_short(self) -> bool {
        u128::from(self.free) * 20 < u128::from(self.all)
    }
}

/// Versions and identifiers of a machine, as in `nodeInfo`. Empty fields are unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineInfo {
    /// Its serial number.
    pub machine_id: String,
    /// The version of its system.
    pub kernel_version: String,
    /// The name of its system.
    pub os_image: String,
    /// The container runtime, with a scheme.
    pub container_runtime: String,
    /// The architecture of what it runs, as `kubernetes.io/arch` names it.
    pub architecture: String,
    /// The operating system of what it runs, as `kubernetes.io/os` names it.
    pub operating_system: String,
}
