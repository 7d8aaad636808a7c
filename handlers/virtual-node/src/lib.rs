//! Virtual nodes: nodes backed by a machine that runs pods and has no kubelet, such as a router or a Java process.
//!
//! One implementation, [`VirtualNodes`], keeps the Node objects, their leases and the status of their pods. It is made of a
//! [`NodeSource`] (which nodes exist, at run time too) and one [`NodeBackEnd`] per node (what that machine can do):
//!
//! ```text
//! NodeSource -- which nodes exist --> NodeStore -- one reader per node: health, inventory --> triggers
//! watch of Pods and Nodes -----------------------------------------------------------------> events
//! triggers and events -- the chain, a queue per node and per pod --> reconcile a node, reconcile a pod
//! ```
//!
//! A reader only reads, and triggers what changed. What is written, in Kubernetes and on the machine, is decided by pure functions
//! of the pod, what was read and the time (`pod::decide`, `pod::status`, `node::object`), each time from scratch: nothing depends on the
//! number or the order of triggers.
//!
//! | module | what it adds |
//! |---|---|
//! | [`app_hosting`] | devices as nodes: from files and custom resources, through the drivers of devices |
//! | [`environment`] | the environment of containers, from `ConfigMap`s, Secrets and fields |

pub mod app_hosting;
mod back_end;
mod counters;
mod delay_queue;
pub mod environment;
mod error;
mod handler;
mod inventory;
mod kubelet;
mod lock;
mod machine;
mod metrics;
mod node;
mod node_store;
mod pod;
mod policy;
mod reach;
mod reader;
mod recorder;
mod shared;
mod source;
mod triggers;

pub use back_end::{NodeBackEnd, Reply};
pub use error::VirtualNodeError;
pub use handler::VirtualNodes;
pub use kubelet::{KubeletError, KubeletOptions, KubeletWords, Kubelets};
pub use metrics::{VirtualNodeMetrics, VirtualNodeMetricsRegistry};
pub use node::{MachineInfo, NodeHealth, NodeSpec, PROVIDER_TAINT, Room};
pub use node_store::NodeStore;
pub use policy::Policy;
pub use shared::Dependencies;
pub use source::NodeSource;
