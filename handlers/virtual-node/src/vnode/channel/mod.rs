//! The channel over which a tunnel passes the reports of machines to the handler: bounded queues by node.

mod queue;
mod receiver;

use std::sync::Arc;

use parking_lot::Mutex;
use staffetta_driver::tunnel::{NodeId, SendError, TunnelEvent, TunnelSender};
use tokio::sync::Notify;

use self::queue::NodeQueues;
pub use self::receiver::TunnelReceiver;
use self::receiver::{Channel, ChannelState};

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

/// Creates the channel over which one tunnel passes the reports of its machines to its caller. Its queues have these limits. After the last
/// clone of the sender is dropped, the receiver gets the queued events, and then `None`.
///
/// A report of a state ([`TunnelEvent::is_state`]) replaces a queued earlier one of the same node and kind. Each node has a bounded queue of
/// answers and queries, and the receiver serves the nodes round-robin.
///
/// ```
/// use staffetta_driver::tunnel::{NodeId, NodeStatusData, TunnelEvent};
/// use staffetta_virtual_node::vnode::{TunnelLimits, channel};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (sender, mut receiver) = channel(TunnelLimits::default());
/// let base: NodeId = "base-1".parse()?;
/// sender.node_status(&base, NodeStatusData::default())?;
/// sender.node_status(&base, NodeStatusData::default())?; // replaces the first one
/// assert!(matches!(receiver.recv().await, Some((node, TunnelEvent::NodeStatus(_))) if node == base));
/// drop(sender);
/// assert!(receiver.recv().await.is_none());
/// # Ok(())
/// # }
/// ```
pub fn channel(limits: TunnelLimits) -> (TunnelSender, TunnelReceiver) {
    let state = ChannelState { queues: NodeQueues::new(limits), senders: true, receiver: true };
    let channel = Arc::new(Channel { state: Mutex::new(state), arrived: Notify::new() });
    let end = SendingEnd(Arc::clone(&channel));
    (TunnelSender::new(move |node, event| end.send(node, event)), TunnelReceiver(channel))
}

/// The part that all clones of a [`TunnelSender`] share. When the last clone is dropped, this tells the receiver that no more events
/// follow.
#[derive(Debug)]
struct SendingEnd(Arc<Channel>);

impl SendingEnd {
    /// Queues an event of `node`, and wakes the receiver. Fails if the receiver was dropped or a limit is reached.
    fn send(&self, node: &NodeId, event: TunnelEvent) -> Result<(), SendError> {
        let mut state = self.0.state();
        if !state.receiver {
            return Err(SendError::Closed);
        }
        state.queues.push(node, event)?;
        drop(state);
        self.0.arrived.notify_one();
        Ok(())
    }
}

impl Drop for SendingEnd {
    fn drop(&mut self) {
        self.0.state().senders = false;
        self.0.arrived.notify_one();
    }
}
