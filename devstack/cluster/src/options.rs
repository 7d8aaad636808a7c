//! What a [`Cluster`](crate::Cluster) is to be like.

use std::time::Duration;

/// What a [`Cluster`](crate::Cluster) is to be like.
#[derive(Clone, Debug)]
pub struct Options {
    /// The prefix of the nodes' names. They carry it as the label `staffetta.dev/cluster` too, so that pods can ask for
    /// these nodes where there are others.
    pub name: String,
    /// How many nodes there are, at most 250.
    pub nodes: u8,
    /// Which controllers run.
    pub parts: Parts,
    /// When a pod starts to run.
    pub pod_start: PodStart,
    /// How long a pod goes on running after its deletion was asked for.
    pub stop_time: Duration,
}

/// Which controllers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parts {
    /// All of them.
    All,
    /// The nodes and their kubelets: for a server beside which the real controllers and scheduler run.
    Nodes,
}

/// When a pod starts to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodStart {
    /// When its annotation `openstack.org/kuryr-vif` shows an active VIF, with the addresses of that VIF.
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
