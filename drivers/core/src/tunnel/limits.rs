//! The errors of reports that were not passed to the receiver, and their limits.

use super::node::MAX_TUNNEL_DATA;

/// The maximum number of containers in one report of a node.
pub const MAX_REPORTED_CONTAINERS: usize = 2000;

/// The error of a report that was not passed to the receiver. The cause is the machine or the load, never the tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The receiver is gone: the tunnel is being stopped.
    #[error("the tunnel is being stopped")]
    Closed,
    /// The node is new, and the maximum number of nodes is reached.
    #[error("there are already {limit} nodes, which is the limit")]
    TooManyNodes {
        /// The maximum number of nodes.
        limit: usize,
    },
    /// The maximum number of answers and queries of the node is already queued.
    #[error("{limit} messages of this node already wait, which is the limit")]
    QueueFull {
        /// The maximum number of answers and queries of a node.
        limit: usize,
    },
    /// The field `tunnel_data` of a machine's description has more than [`MAX_TUNNEL_DATA`] bytes as JSON.
    #[error(
        "a description has {bytes} bytes of data of its tunnel, and at most {MAX_TUNNEL_DATA} are allowed"
    )]
    TooMuchTunnelData {
        /// The number of bytes of the data as JSON.
        bytes: usize,
    },
    /// A report names more than [`MAX_REPORTED_CONTAINERS`] containers.
    #[error("a report names {count} containers, and at most {MAX_REPORTED_CONTAINERS} are allowed")]
    TooManyContainers {
        /// The number of containers in the report.
        count: usize,
    },
}
