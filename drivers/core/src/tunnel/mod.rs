//! The contract of a tunnel: a driver of many machines that announce themselves, report their state, and run containers.
//!
//! In [Koupleless](https://koupleless.io), such a machine is a *base*, a long-running Java process, and a container is a *module*
//! that the base loads. A base becomes a Kubernetes node, and a group of modules a pod. The names of methods and types are those of
//! Koupleless's virtual kubelet.
//!
//! A [`Tunnel`] asks machines, and passes what they answer or report to a [`TunnelSender`], which belongs to whoever runs the tunnel:
//!
//! ```
//! use std::sync::mpsc;
//! use staffetta_driver::tunnel::{NodeId, NodeStatusData, SendError, TunnelEvent, TunnelSender};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (events, received) = mpsc::channel();
//! let sender = TunnelSender::new(move |node, event| {
//!     events.send((node.clone(), event)).map_err(|_| SendError::Closed)
//! });
//! let base: NodeId = "base-1".parse()?;
//! sender.node_status(&base, NodeStatusData::default())?;
//! assert!(matches!(received.recv()?, (node, TunnelEvent::NodeStatus(_)) if node == base));
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
mod sender;

pub use baseline::{BASELINE_TIMEOUT, BaselineError, BaselineQuery, QueryBaselineRequest};
pub use container::{
    ContainerOperationResponseData, ContainerState, ContainerStatusData, OperationResponseResult,
    UNKNOWN_STATE,
};
pub use driver::Tunnel;
pub use event::TunnelEvent;
pub use limits::{MAX_REPORTED_CONTAINERS, SendError};
pub use node::{MAX_TUNNEL_DATA, NetworkInfo, NodeActivation, NodeDescription, NodeMetadata};
pub use node_id::{InvalidNodeId, NodeId};
pub use node_status::{NodeResource, NodeStatusData};
pub use pod_key::{InvalidPodKey, PodKey};
pub use sender::TunnelSender;
