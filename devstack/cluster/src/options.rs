//! Options of a [`Cluster`](crate::Cluster).

use std::time::Duration;

/// Options of a [`Cluster`](crate::Cluster).
#[derive(Clone, Debug)]
pub struct Options {
    /// The prefix of the nodes' names. They carry it as the label `staffetta.dev/cluster` too, so that pods can ask for
    /// these nodes where there are others.
    pub name: String,
    /// The number of nodes, at most 250.
    pub nodes: u8,
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
    /// The nodes and their kubelets: for a server beside which the real controllers and scheduler run.
    Nodes,
}

/// The condition for a pod to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodStart {
    /// Its annotation `openstack.org/kuryr-vif` shows an active VIF; the pod gets its addresses.
    WithVif,
    /// As soon as it has a node, with a made-up address out of `10.244.0.0/16`.
    AtOnce,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: "node".into(),
            nodes: 2,
            parts: Parts::All,
            pod_start: PodStart::WithVif,
            stop_time: Duration::from_millis(100),
        }
    }
}
