//! Options of a [`Cluster`](crate::Cluster).

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::NodeSpec;

/// Options of a [`Cluster`](crate::Cluster).
#[derive(Clone, Debug)]
pub struct Options {
    /// The prefix of the nodes' names. It is also the value of their label `staffetta.dev/cluster`, by which pods can select
    /// these nodes in a cluster with others.
    pub name: String,
    /// The number of nodes, at most 250.
    pub nodes: u8,
    /// Further labels of the nodes. They override the usual ones.
    pub labels: BTreeMap<String, String>,
    /// The `spec` of the nodes.
    pub spec: Option<NodeSpec>,
    /// The controllers that run.
    pub parts: Parts,
    /// The condition for a pod to start.
    pub pod_start: PodStart,
    /// The time that a pod keeps running after its deletion was requested.
    pub stop_time: Duration,
}

/// The controllers that run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parts {
    /// All of them.
    All,
    /// The nodes and their kubelets, for a server with real controllers and a real scheduler.
    Nodes,
}

/// The condition for a pod to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodStart {
    /// The pod's annotation `openstack.org/kuryr-vif` contains an active VIF. The pod gets the addresses of the VIF.
    WithVif,
    /// The pod's annotation `vpc.amazonaws.com/PrivateIPv4Address` contains an address, which the pod gets.
    WithInterfaceAddress,
    /// The pod has a node. It gets an invented address from `10.244.0.0/16`.
    AtOnce,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: "node".into(),
            nodes: 2,
            labels: BTreeMap::new(),
            spec: None,
            parts: Parts::All,
            pod_start: PodStart::WithVif,
            stop_time: Duration::from_millis(100),
        }
    }
}
