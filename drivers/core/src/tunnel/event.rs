//! The reports of machines that a tunnel passes to its receiver.

use super::baseline::BaselineQuery;
use super::container::{ContainerOperationResponseData, ContainerStatusData};
use super::node::NodeDescription;
use super::node_status::NodeStatusData;

/// A report or an answer of one machine.
#[derive(Debug)]
pub enum TunnelEvent {
    /// The machine announced itself, or that it ends. A later description replaces this one while it is queued.
    NodeDiscovered(NodeDescription),
    /// The health of the machine. A later report replaces this one while it is queued.
    NodeStatus(NodeStatusData),
    /// The status of all containers on the machine: a container that is missing does not exist there. A later report replaces this one
    /// while it is queued.
    AllContainerStatuses(Vec<ContainerStatusData>),
    /// The answer to the request to start or to activate a container.
    StartContainerResponse(ContainerOperationResponseData),
    /// The answer to the request to stop a container.
    ShutdownContainerResponse(ContainerOperationResponseData),
    /// The machine asks for the containers with which it starts.
    BaselineQuery(BaselineQuery),
}

impl TunnelEvent {
    /// Returns `true` if the event reports a state of the machine, so that a later report of the same kind replaces it in the queue.
    pub fn is_state(&self) -> bool {
        matches!(self, Self::NodeDiscovered(_) | Self::NodeStatus(_) | Self::AllContainerStatuses(_))
    }
}
