//! The reports of machines, as a tunnel passes them on.

use super::baseline::BaselineQuery;
use super::container::{ContainerOperationResponseData, ContainerStatusData};
use super::node::NodeDescription;
use super::node_status::NodeStatusData;

/// A report or an answer of one machine.
#[derive(Debug)]
pub enum TunnelEvent {
    /// The machine introduced itself, or said that it ends. A later one replaces it.
    NodeDiscovered(NodeDescription),
    /// The health of the machine. A later one replaces it.
    NodeStatus(NodeStatusData),
    /// The status of all containers on the machine: what is missing does not exist there. A later one replaces it.
    AllContainerStatuses(Vec<ContainerStatusData>),
    /// The answer to the request to start a container.
    StartContainerResponse(ContainerOperationResponseData),
    /// The answer to the request to stop a container.
    ShutdownContainerResponse(ContainerOperationResponseData),
    /// The machine asks for the containers that it is to start with.
    BaselineQuery(BaselineQuery),
}

impl TunnelEvent {
    /// Returns `true` if the event is a state, of which only the latest one counts.
    pub fn is_state(&self) -> bool {
        matches!(self, Self::NodeDiscovered(_) | Self::NodeStatus(_) | Self::AllContainerStatuses(_))
    }
}
