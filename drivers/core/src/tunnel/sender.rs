//! The sending end of the channel between a tunnel and its receiver.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::Container;
use tokio::sync::{Notify, oneshot};

use super::baseline::{BASELINE_TIMEOUT, BaselineError, BaselineQuery, QueryBaselineRequest};
use super::container::{ContainerOperationResponseData, ContainerStatusData};
use super::event::TunnelEvent;
use super::node::{MAX_TUNNEL_DATA, NodeDescription};
use super::node_id::NodeId;
use super::node_status::NodeStatusData;
use super::queue::NodeQueues;
use super::receiver::TunnelReceiver;

/// The maximum number of containers in one report of a node.
pub const MAX_REPORTED_CONTAINERS: usize = 2000;

/// The limits of the queues between a tunnel and its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelLimits {
    /// The maximum number of nodes that have queued events or are kept by [`TunnelReceiver::keep`].
    pub nodes: usize,
    /// The maximum number of queued answers and queries of one node. The latest state of each kind is queued in addition.
    pub events_per_node: usize,
}

impl Default for TunnelLimits {
    fn default() -> Self {
        Self { nodes: 10_000, events_per_node: 64 }
    }
}

/// Creates the channel of one tunnel.
pub fn channel(limits: TunnelLimits) -> (TunnelSender, TunnelReceiver) {
    let state = ChannelState { queues: NodeQueues::new(limits), senders: true, receiver: true };
    let channel = Arc::new(Channel { state: Mutex::new(state), arrived: Notify::new() });
    (TunnelSender(Arc::new(SendingEnd(Arc::clone(&channel)))), TunnelReceiver(channel))
}

/// Passes the reports of machines to the receiver. Clones share the channel, which is closed when the last one is dropped.
///
/// No call blocks. A state ([`TunnelEvent::is_state`]) replaces a queued earlier one of the same node. Each node has a bounded
/// queue of answers and queries, and the receiver serves the nodes round-robin.
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

    /// Queues an event of `node`, and wakes the receiver.
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

/// The error of a report that was not passed to the receiver. The cause is the machine or the load, never the tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The receiver is gone: the tunnel is being stopped.
    #[error("the tunnel is being stopped")]
    Closed,
    /// The node is new, and the maximum number of nodes is reached.
    #[error("there are already {limit} nodes, which is the limit")]
    TooManyNodes {
        /// The maximum number of nodes: [`TunnelLimits::nodes`].
        limit: usize,
    },
    /// The maximum number of answers and queries of the node is already queued.
    #[error("{limit} messages of this node already wait, which is the limit")]
    QueueFull {
        /// The maximum number of answers and queries: [`TunnelLimits::events_per_node`].
        limit: usize,
    },
    /// A description contains too much data of the tunnel.
    #[error(
        "a description has {bytes} bytes of data of its tunnel, and at most {MAX_TUNNEL_DATA} are allowed"
    )]
    TooMuchTunnelData {
        /// The number of bytes.
        bytes: usize,
    },
    /// A report names too many containers.
    #[error("a report names {count} containers, and at most {MAX_REPORTED_CONTAINERS} are allowed")]
    TooManyContainers {
        /// The number of containers in the report.
        count: usize,
    },
}

/// The state that sender and receiver share.
#[derive(Debug)]
pub(super) struct Channel {
    state: Mutex<ChannelState>,
    /// Notified when an event was added, or the last sender was dropped.
    pub(super) arrived: Notify,
}

impl Channel {
    /// Locks the queues and the flags of both ends.
    pub(super) fn state(&self) -> MutexGuard<'_, ChannelState> {
        // Each critical section leaves the queues consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The queued events, and the flags of both ends of the channel.
#[derive(Debug)]
pub(super) struct ChannelState {
    /// The queued events, by node.
    pub(super) queues: NodeQueues,
    /// `true` until the last sender is dropped.
    pub(super) senders: bool,
    /// `true` until the receiver is dropped.
    pub(super) receiver: bool,
}

/// Closes the channel when the last sender is dropped.
#[derive(Debug)]
struct SendingEnd(Arc<Channel>);

impl Drop for SendingEnd {
    fn drop(&mut self) {
        self.0.state().senders = false;
        self.0.arrived.notify_one();
    }
}
