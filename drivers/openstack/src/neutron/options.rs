//! The section `[pod_vif_nested]`, and what ports take from others.

use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use staffetta_driver::SubnetId;

/// Pods whose node is a machine of the same cloud, and lives behind a port itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PodVifNestedOptions {
    /// The ids of the subnets in which the nodes have the addresses that Kubernetes knows of them. By these the port of a
    /// node is found; the drivers `nested-vlan` and `nested-macvlan` need at least one.
    #[schemars(example = "6a1b6f5c-3d0e-4d51-9b1e-0c5c3f0c7d10")]
    pub worker_nodes_subnets: Vec<SubnetId>,
    /// How often a change of a node's port is tried when others change it at the same time.
    pub rev_update_attempts: NonZeroU32,
}

impl Default for PodVifNestedOptions {
    fn default() -> Self {
        let rev_update_attempts = NonZeroU32::new(3).expect("three is not zero");
        Self { worker_nodes_subnets: Vec::new(), rev_update_attempts }
    }
}

/// What all ports take from other sections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortOptions {
    /// The bridge of Open vSwitch on each node, where Neutron does not name it.
    pub ovs_bridge: String,
    /// Whether a port carries the name of its pod, for people who look at Neutron.
    pub port_debug: bool,
}
