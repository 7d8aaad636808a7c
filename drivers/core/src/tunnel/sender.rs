//! The sender over which a tunnel passes the reports of its machines to its caller.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Container;
use tokio::sync::oneshot;

use super::baseline::{BASELINE_TIMEOUT, BaselineError, BaselineQuery, QueryBaselineRequest};
use super::container::{ContainerOperationResponseData, ContainerStatusData};
use super::event::TunnelEvent;
use super::limits::{MAX_REPORTED_CONTAINERS, SendError};
use super::node::{MAX_TUNNEL_DATA, NodeDescription};
use super::node_id::NodeId;
use super::node_status::NodeStatusData;

/// Passes the reports of machines to the caller of the tunnel, its receiver. Clones share one receiver.
///
/// No report waits for the receiver; only [`query_baseline`](Self::query_baseline) waits. The receiver may limit the number of nodes, and of
/// the answers and queries of a node that it has not handled yet. Of the reports of a state ([`TunnelEvent::is_state`]) of one node and kind,
/// it may handle the last one alone.
#[derive(Clone)]
pub struct TunnelSender(Arc<Receive>);

/// Takes an event of a node without waiting.
type Receive = dyn Fn(&NodeId, TunnelEvent) -> Result<(), SendError> + Send + Sync;

impl TunnelSender {
    /// Creates a sender whose receiver is `receive`. It is called for each report that is within the limits of this module, must not block,
    /// and is dropped with the last clone of the sender.
    pub fn new(
        receive: impl Fn(&NodeId, TunnelEvent) -> Result<(), SendError> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(receive))
    }

    /// Reports that a machine announced itself, or that it ends. A description with more than [`MAX_TUNNEL_DATA`] bytes of data of
    /// the tunnel is rejected.
    pub fn node_discovered(&self, node: &NodeId, description: NodeDescription) -> Result<(), SendError> {
        let data = &description.tunnel_data;
        let bytes = if data.is_empty() { 0 } else { serde_json::json!(data).to_string().len() };
        if bytes > MAX_TUNNEL_DATA {
            return Err(SendError::TooMuchTunnelData { bytes });
        }
        (self.0)(node, TunnelEvent::NodeDiscovered(description))
    }

    /// Reports the health of a machine.
    pub fn node_status(&self, node: &NodeId, status: NodeStatusData) -> Result<(), SendError> {
        (self.0)(node, TunnelEvent::NodeStatus(status))
    }

    /// Reports the status of all containers on a machine: a container that is missing does not exist there. A report of more
    /// than [`MAX_REPORTED_CONTAINERS`] is rejected.
    pub fn all_container_statuses(
        &self,
        node: &NodeId,
        statuses: Vec<ContainerStatusData>,
    ) -> Result<(), SendError> {
        if statuses.len() > MAX_REPORTED_CONTAINERS {
            return Err(SendError::TooManyContainers { count: statuses.len() });
        }
        (self.0)(node, TunnelEvent::AllContainerStatuses(statuses))
    }

    /// Reports the answer to a request to start a container.
    pub fn start_container_response(
        &self,
        node: &NodeId,
        answer: ContainerOperationResponseData,
    ) -> Result<(), SendError> {
        (self.0)(node, TunnelEvent::StartContainerResponse(answer))
    }

    /// Reports the answer to a request to stop a container.
    pub fn shutdown_container_response(
        &self,
        node: &NodeId,
        answer: ContainerOperationResponseData,
    ) -> Result<(), SendError> {
        (self.0)(node, TunnelEvent::ShutdownContainerResponse(answer))
    }

    /// Requests the containers with which a machine starts, and waits for the answer for at most [`BASELINE_TIMEOUT`].
    pub async fn query_baseline(
        &self,
        node: &NodeId,
        request: QueryBaselineRequest,
    ) -> Result<Vec<Container>, BaselineError> {
        let (answer, answered) = oneshot::channel();
        (self.0)(node, TunnelEvent::BaselineQuery(BaselineQuery::new(request, answer)))?;
        match tokio::time::timeout(BASELINE_TIMEOUT, answered).await {
            Ok(Ok(containers)) => Ok(containers),
            Ok(Err(_)) => Err(BaselineError::Unanswered),
            Err(_) => Err(BaselineError::TimedOut),
        }
    }
}

impl fmt::Debug for TunnelSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TunnelSender").finish_non_exhaustive()
    }
}
