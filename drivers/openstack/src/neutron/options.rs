//! The section `[pod_vif_nested]`, and options of ports from other sections.

use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use staffetta_driver::SubnetId;

/// Options of pods on nodes that are virtual machines of the same cloud.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PodVifNestedOptions {
    /// The ids of the subnets of the nodes' addresses in Kubernetes, by which the port of a node is found. The drivers
    /// `nested-vlan` and `nested-macvlan` need at least one.
    #[schemars(example = "6a1b6f5c-3d0e-4d51-9b1e-0c5c3f0c7d10")]
    pub worker_nodes_subnets: Vec<SubnetId>,
    /// The maximum number of attempts to change the port of a node while other programs change it too.
    pub rev_update_attempts: NonZeroU32,
}

impl Default for PodVifNestedOptions {
    fn default() -> Self {
        let rev_update_attempts = NonZeroU32::new(3).expect("three is not zero");
        Self { worker_nodes_subnets: Vec::new(), rev_update_attempts }
    }
}

/// Options of all ports that the drivers of pod VIFs create in Neutron, from several sections of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortOptions {
    /// The Open vSwitch bridge of ports whose binding in Neutron does not name one.
    pub ovs_bridge: String,
    /// `true` if ports get names, as with Kuryr's option `port_debug`: that of their pod, or the same name for all pooled ports.
    pub port_debug: bool,
}
