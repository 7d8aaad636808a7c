//! The contract of a tunnel: a driver of many machines that announce themselves, report their state, and run containers.
//!
//! In [Koupleless](https://koupleless.io), such a machine is a *base*, a long-running Java process, and a container is a *module*
//! that the base loads. A base becomes a Kubernetes node, and a group of modules a pod. The names of methods, types and JSON keys are
//! those of Koupleless's virtual kubelet.
//!
//! A [`Tunnel`] asks machines, and passes what they answer or report to a [`TunnelSender`]. The other end, a [`TunnelReceiver`],
//! belongs to whoever runs the tunnel:
//!
//! ```
//! use staffetta_driver::tunnel::{self, NodeId, NodeStatusData, TunnelEvent, TunnelLimits};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (sender, mut receiver) = tunnel::channel(TunnelLimits::default());
//! let base: NodeId = "base-1".parse()?;
//! sender.node_status(&base, NodeStatusData::default())?;
//! sender.node_status(&base, NodeStatusData::default())?; // replaces the first one
//! assert!(matches!(receiver.recv().await, Some((node, TunnelEvent::NodeStatus(_))) if node == base));
//! drop(sender);
//! assert!(receiver.recv().await.is_none());
//! # Ok(())
//! # }
//! ```

mod baseline;
mod container;
mod driver;
mod event;
mod limits;
mod node;
mod node_id;
mod node_status;
mod pod_key;
mod queue;
mod receiver;
mod sender;

pub use baseline::{BASELINE_TIMEOUT, BaselineError, BaselineQuery, QueryBaselineRequest};
pub use container::{
    ContainerOperationResponseData, ContainerState, ContainerStatusData, OperationResponseResult,
};
pub use driver::Tunnel;
pub use event::TunnelEvent;
pub use limits::{MAX_REPORTED_CONTAINERS, SendError, TunnelLimits};
pub use node::{MAX_TUNNEL_DATA, NetworkInfo, NodeActivation, NodeDescription, NodeMetadata};
pub use node_id::{InvalidNodeId, NodeId};
pub use node_status::{NodeResource, NodeStatusData};
pub use pod_key::{InvalidPodKey, PodKey};
pub use receiver::TunnelReceiver;
pub use sender::{TunnelSender, channel};
