//! The sending end of the channel between a tunnel and its receiver.

use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::Container;
use tokio::sync::{Notify, oneshot};

use super::baseline::{BASELINE_TIMEOUT, BaselineError, BaselineQuery, QueryBaselineRequest};
use super::container::{ContainerOperationResponseData, ContainerStatusData};
use super::event::TunnelEvent;
use super::limits::{MAX_REPORTED_CONTAINERS, SendError, TunnelLimits};
use super::node::{MAX_TUNNEL_DATA, NodeDescription};
use super::node_id::NodeId;
use super::node_status::NodeStatusData;
use super::queue::NodeQueues;
use super::receiver::{Channel, ChannelState, TunnelReceiver};

/// Creates the channel over which one tunnel passes the reports of its machines to its caller. Its queues have these limits.
pub fn channel(limits: TunnelLimits) -> (TunnelSender, TunnelReceiver) {
    let state = ChannelState { queues: NodeQueues::new(limits), senders: true, receiver: true };
    let channel = Arc::new(Channel { state: Mutex::new(state), arrived: Notify::new() });
    (TunnelSender(Arc::new(SendingEnd(Arc::clone(&channel)))), TunnelReceiver(channel))
}

/// Passes the reports of machines to the receiver. Clones share one channel. After the last clone is dropped, the receiver gets the queued
/// events, and then `None`.
///
/// No report waits for the receiver; only [`query_baseline`](Self::query_baseline) waits. A report of a state
/// ([`TunnelEvent::is_state`]) replaces a queued earlier one of the same node and kind. Each node has a bounded queue of answers and
/// queries, and the receiver serves the nodes round-robin.
#[derive(Clone, Debug)]
pub struct TunnelSender(Arc<SendingEnd>);

impl TunnelSender {
    /// Reports that a machine announced itself, or that it ends. A description with more than [`MAX_TUNNEL_DATA`] bytes of data of
    /// the tunnel is rejected.
    pub fn node_discovered(&self, node: &NodeId, description: NodeDescription) -> Result<(), SendError> {
        let data = &description.tunnel_data;
        let bytes = if data.is_empty() { 0 } else { serde_json::json!(data).to_string().len() };
        if bytes > MAX_TUNNEL_DATA {
            return Err(SendError::TooMuchTunnelData { bytes });
        }
        self.send(node, TunnelEvent::NodeDiscovered(description))
    }

    /// Reports the health of a machine.
    pub fn node_status(&self, node: &NodeId, status: NodeStatusData) -> Result<(), SendError> {
        self.send(node, TunnelEvent::NodeStatus(status))
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
        self.send(node, TunnelEvent::AllContainerStatuses(statuses))
    }

    /// Reports the answer to a request to start a container.
    pub fn start_container_response(
        &self,
        node: &NodeId,
        answer: ContainerOperationResponseData,
    ) -> Result<(), SendError> {
        self.send(node, TunnelEvent::StartContainerResponse(answer))
    }

    /// Reports the answer to a request to stop a container.
    pub fn shutdown_container_response(
        &self,
        node: &NodeId,
        answer: ContainerOperationResponseData,
    ) -> Result<(), SendError> {
        self.send(node, TunnelEvent::ShutdownContainerResponse(answer))
    }

    /// Requests the containers with which a machine starts, and waits for the answer for at most [`BASELINE_TIMEOUT`].
    pub async fn query_baseline(
        &self,
        node: &NodeId,
        request: QueryBaselineRequest,
    ) -> Result<Vec<Container>, BaselineError> {
        let (answer, answered) = oneshot::channel();
        self.send(node, TunnelEvent::BaselineQuery(BaselineQuery { request, answer }))?;
        match tokio::time::timeout(BASELINE_TIMEOUT, answered).await {
            Ok(Ok(containers)) => Ok(containers),
            Ok(Err(_)) => Err(BaselineError::Unanswered),
            Err(_) => Err(BaselineError::TimedOut),
        }
    }

    /// Queues an event of `node`, and wakes the receiver. Fails if the receiver was dropped or a limit is reached.
    fn send(&self, node: &NodeId, event: TunnelEvent) -> Result<(), SendError> {
        let channel = &self.0.0;
        let mut state = channel.state();
        if !state.receiver {
            return Err(SendError::Closed);
        }
        state.queues.push(node, event)?;
        drop(state);
        channel.arrived.notify_one();
        Ok(())
    }
}

/// The part that all clones of a [`TunnelSender`] share. When the last clone is dropped, this tells the receiver that no more events
/// follow.
#[derive(Debug)]
struct SendingEnd(Arc<Channel>);

impl Drop for SendingEnd {
    fn drop(&mut self) {
        self.0.state().senders = false;
        self.0.arrived.notify_one();
    }
}
