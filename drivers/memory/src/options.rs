//! The section `[memory]` of the configuration file.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use staffetta_driver::{ProjectId, SecurityGroupId};

/// Options of the simulated cloud in this process, behind the drivers named `memory`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MemoryOptions {
    /// The project of all pods, namespaces and services.
    pub project: ProjectId,
    /// The subnets of pods, at most one per address family. A pod gets an address in each.
    pub pod_subnets: Vec<IpNet>,
    /// Other subnets for the pods of single namespaces, by the name of the namespace.
    pub namespace_subnets: BTreeMap<String, Vec<IpNet>>,
    /// The maximum number of addresses of each subnet that are in use. If absent, there is no limit.
    #[schemars(example = 250_u32)]
    pub addresses_per_subnet: Option<u32>,
    /// The security groups of pods.
    pub pod_security_groups: Vec<SecurityGroupId>,
    /// The MTU of the network, in bytes.
    #[schemars(range(min = 68, max = 65535))]
    pub mtu: u32,
    /// The maximum number of existing ports. If absent, there is no limit.
    #[schemars(example = 500_u32)]
    pub port_quota: Option<u32>,
    /// The time for which a new port is DOWN before it becomes ACTIVE, in milliseconds.
    pub activation_delay_ms: u64,
    /// The time before a released address is used again, in milliseconds.
    pub cool_down_ms: u64,
    /// The subnet that must contain the cluster IPs of services. If absent, any cluster IP is accepted.
    #[schemars(example = "10.96.0.0/12")]
    pub service_subnet: Option<IpNet>,
    /// The security groups of load balancers.
    pub service_security_groups: Vec<SecurityGroupId>,
    /// The maximum number of existing load balancers. If absent, there is no limit.
    #[schemars(example = 50_u32)]
    pub load_balancer_quota: Option<u32>,
    /// The time after each change for which a load balancer accepts no other change, in milliseconds.
    pub load_balancer_delay_ms: u64,
    /// The subnet of the public addresses that services of type `LoadBalancer` get. Its network address, its first host address and its
    /// broadcast address are not used.
    pub public_ips: IpNet,
    /// The subnet from which the interfaces of nodes get prefixes. Every machine that a node names exists.
    pub prefix_subnet: Ipv4Net,
    /// The number of IPv4 addresses that the interface of a node may have, its primary one included. Each prefix counts as one.
    pub addresses_per_interface: NonZeroUsize,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        Self {
            project: "memory".into(),
            pod_subnets: vec!["10.10.0.0/16".parse().expect("it is a subnet")],
            namespace_subnets: BTreeMap::new(),
            addresses_per_subnet: None,
            pod_security_groups: vec!["default".into()],
            mtu: 1450,
            port_quota: None,
            activation_delay_ms: 500,
            cool_down_ms: 30_000,
            service_subnet: None,
            service_security_groups: vec!["default".into()],
            load_balancer_quota: None,
            load_balancer_delay_ms: 200,
            public_ips: "203.0.113.0/27".parse().expect("it is a subnet"),
            prefix_subnet: "10.11.0.0/16".parse().expect("it is a subnet"),
            addresses_per_interface: NonZeroUsize::new(10).expect("it is not zero"),
        }
    }
}

impl MemoryOptions {
    /// Returns the subnets of all pods, including those of single namespaces.
    pub(crate) fn subnets(&self) -> impl Iterator<Item = IpNet> {
        self.pod_subnets.iter().chain(self.namespace_subnets.values().flatten()).copied()
    }

    /// Returns the time before a released address is used again.
    pub(crate) fn cool_down(&self) -> Duration {
        Duration::from_millis(self.cool_down_ms)
    }
}
