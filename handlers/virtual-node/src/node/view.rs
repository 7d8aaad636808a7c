//! The state of a node and of its machine, of which everything that is written for the node is a function.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::spec::{NodeHealth, NodeSpec};
use crate::counters::STATES;
use crate::reach::{Outage, Reachability};

/// A node and what is known of its machine, at one moment.
#[derive(Clone, Debug)]
pub(crate) struct MachineView {
    /// The specification of the node, supplied by its `NodeSource`.
    pub(crate) spec: Arc<NodeSpec>,
    /// The reachability of the machine.
    pub(crate) reach: Reachability,
    /// The state of the Node object.
    pub(crate) object: NodeObject,
    /// The health of the machine, once it was read.
    pub(crate) health: Option<Arc<NodeHealth>>,
    /// The address of the node's kubelet API, once this process serves it. The node has it as `InternalIP`.
    pub(crate) kubelet: Option<SocketAddr>,
}

/// The state of a machine's Node object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum NodeObject {
    /// It is about to be created, or was not looked up yet.
    #[default]
    Coming,
    /// It exists, and is ours.
    Ours,
    /// None that is ours exists.
    Missing {
        /// The reason, in CamelCase.
        reason: &'static str,
        /// The message.
        message: String,
    },
}

impl MachineView {
    /// The machine's own address, as far as it is known.
    pub(crate) fn host_ip(&self) -> Option<IpAddr> {
        self.spec.host_ip.or_else(|| self.health.as_ref()?.host_ip)
    }

    /// The current outage; `None` while the machine is reachable or was never read.
    pub(crate) fn outage(&self) -> Option<&Outage> {
        match &self.reach {
            Reachability::Down(outage) => Some(outage),
            Reachability::Untried | Reachability::Up { .. } => None,
        }
    }

    /// The reason and message of a machine that is reachable but takes no pods.
    pub(crate) fn problem(&self) -> Option<&(&'static str, String)> {
        self.health.as_ref()?.problem.as_ref()
    }

    /// The state of the machine as a label value.
    pub(crate) fn condition(&self) -> &'static str {
        let [ready, degraded, untried, unreachable] = STATES;
        match &self.reach {
            Reachability::Down(_) => unreachable,
            Reachability::Untried => untried,
            Reachability::Up { .. } if self.problem().is_some() => degraded,
            Reachability::Up { .. } => ready,
        }
    }

    /// Returns `true` if the machine may be called to run pods.
    pub(crate) fn accepts_pods(&self) -> bool {
        self.reach.is_up() && !self.spec.retired && self.object == NodeObject::Ours
    }
}
