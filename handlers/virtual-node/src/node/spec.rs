//! What a node is to be: what its source says of it, and what its machine tells.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// The key of the taint that keeps pods away which do not ask for a virtual node.
pub const PROVIDER_TAINT: &str = "virtual-kubelet.io/provider";

/// What a source says of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeSpec {
    /// The name: a DNS subdomain.
    pub name: String,
    /// Labels beside those that every virtual node has.
    pub labels: BTreeMap<String, String>,
    /// Taints; others that the object has are left alone.
    pub taints: Vec<Taint>,
    /// How many pods it takes.
    pub max_pods: u32,
    /// Where the kubelet API of the node is answered, where that is not by this process.
    pub kubelet: Option<KubeletEndpoint>,
    /// The machine's own address, which its pods have as `hostIP`; none where it must be found out ([`NodeHealth::host_ip`]).
    pub host_ip: Option<IpAddr>,
    /// Where the machine is: when that changes, it is another machine, and nothing is known of it.
    pub place: String,
    /// Whatever tells one way to the machine from another: when it changes, the way is opened anew.
    pub session: u64,
    /// Whether it is being taken out of the cluster: nothing is done for its pods any more.
    pub retired: bool,
}

#[cfg(test)]
impl NodeSpec {
    /// A node of which nothing is said but its name, with room for one pod.
    pub(crate) fn bare(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            labels: BTreeMap::new(),
            taints: Vec::new(),
            max_pods: 1,
            kubelet: None,
            host_ip: None,
            place: String::new(),
            session: 0,
            retired: false,
        }
    }
}

/// Where the kubelet API of a node is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KubeletEndpoint {
    /// The address, which the node has as `InternalIP`.
    pub address: IpAddr,
    /// The port.
    pub port: u16,
}

/// What a machine is and has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeHealth {
    /// What it has, by resource; `pods` is of the [`NodeSpec`].
    pub capacity: BTreeMap<String, Quantity>,
    /// What of that pods may have.
    pub allocatable: BTreeMap<String, Quantity>,
    /// How much of its memory is free; none where it does not tell.
    pub memory: Option<Room>,
    /// How much of its storage is free; none where it does not tell.
    pub storage: Option<Room>,
    /// Its own address, where that was found out only when it was asked.
    pub host_ip: Option<IpAddr>,
    /// What it is.
    pub info: MachineInfo,
    /// Why it takes no pods although it can be reached, in one word of CamelCase and for people; none when it does.
    pub trouble: Option<(&'static str, String)>,
}

/// How much of something is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// What is free, in bytes.
    pub free: u64,
    /// All of it, in bytes.
    pub all: u64,
}

impl Room {
    /// Whether less than a twentieth of it is free.
    pub fn is_short(self) -> bool {
        u128::from(self.free) * 20 < u128::from(self.all)
    }
}

/// What a machine is, as `nodeInfo` shows it. What is empty is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineInfo {
    /// Its serial number.
    pub machine_id: String,
    /// The version of its system.
    pub kernel_version: String,
    /// The name of its system.
    pub os_image: String,
    /// What runs containers there, with a scheme.
    pub container_runtime: String,
    /// The architecture of what it runs, as `kubernetes.io/arch` names it.
    pub architecture: String,
    /// The operating system of what it runs, as `kubernetes.io/os` names it.
    pub operating_system: String,
}
