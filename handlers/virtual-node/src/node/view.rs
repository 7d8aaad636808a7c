//! The state of a virtual node and its machine: the input of every write for the node.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::spec::{NodeHealth, NodeSpec};
use crate::counters::STATES;
use crate::reach::{MachineOutage, Reachability};

/// The state of a virtual node and its machine at one moment. The machine is the device or base that the node represents.
#[derive(Clone, Debug)]
pub(crate) struct MachineView {
    /// The specification of the node, from its `NodeSource`.
    pub(crate) spec: Arc<NodeSpec>,
    /// The reachability of the machine: not tried yet, up, or down with the current outage.
    pub(crate) reach: Reachability,
    /// The state of the Node object in Kubernetes: not read yet or about to be created, owned by this handler, or missing.
    pub(crate) object: NodeObject,
    /// The last reported health of the machine; `None` before the first report.
    pub(crate) health: Option<Arc<NodeHealth>>,
    /// The address and port at which the API server reaches the node's kubelet API; `None` while they are not known. The node has the
    /// address as `InternalIP`. A dry run sets the expected ones, although it serves nothing.
    pub(crate) kubelet: Option<SocketAddr>,
}

/// The state of the Node object of a virtual node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum NodeObject {
    /// The Node object was not read yet, or is about to be created.
    #[default]
    Coming,
    /// The Node object exists and is owned by this handler.
    Ours,
    /// No Node object that this handler owns exists: another owner has the name, or the creation failed.
    Missing {
        /// The reason why this handler has no Node object for the node, one word in CamelCase.
        reason: &'static str,
        /// The message of the error with its causes: the name is taken, or the creation failed.
        message: String,
    },
}

impl MachineView {
    /// Returns the IP address of the machine: that of the specification, or else the one that the machine reported. Returns
    /// `None` if neither is known.
    pub(crate) fn host_ip(&self) -> Option<IpAddr> {
        self.spec.host_ip.or_else(|| self.health.as_ref()?.host_ip)
    }

    /// Returns the current outage of the machine; `None` while the machine is reachable or was not read yet.
    pub(crate) fn outage(&self) -> Option<&MachineOutage> {
        match &self.reach {
            Reachability::Down(outage) => Some(outage),
            Reachability::Untried | Reachability::Up { .. } => None,
        }
    }

    /// Returns the reason (in CamelCase) and the message if the machine does not accept pods although it is reachable, as
    /// of its last health report; `None` otherwise.
    pub(crate) fn problem(&self) -> Option<&(&'static str, String)> {
        self.health.as_ref()?.problem.as_ref()
    }

    /// Returns the state of the machine as a label value, one of [`STATES`].
    pub(crate) fn condition(&self) -> &'static str {
        let [ready, degraded, untried, unreachable] = STATES;
        match &self.reach {
            Reachability::Down(_) => unreachable,
            Reachability::Untried => untried,
            Reachability::Up { .. } if self.problem().is_some() => degraded,
            Reachability::Up { .. } => ready,
        }
    }

    /// Returns `true` if steps for pods may be sent to the machine: the machine is reachable, and its Node object is owned
    /// by this handler and not being removed.
    pub(crate) fn accepts_pods(&self) -> bool {
        self.reach.is_up() && self.may_have_pods()
    }

    /// Returns `true` if the machine can get pods while it is reachable: its Node object is owned by this handler and not being
    /// removed.
    pub(crate) fn may_have_pods(&self) -> bool {
        !self.spec.retired && self.object == NodeObject::Ours
    }
}
