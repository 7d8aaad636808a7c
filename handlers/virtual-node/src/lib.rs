//! Virtual nodes: Node objects whose pods run on a machine without a kubelet, such as a router or a Java process.
//!
//! In this crate, *machine* means the device or process behind a virtual node, and *workload* means everything that
//! runs on a machine for one pod.
//!
//! The handler [`VirtualNodes`] writes the Node objects, their leases and the status of their pods. It uses a
//! [`NodeSource`], which lists the nodes and connects to their machines, and one [`NodeBackEnd`] per node, which reads
//! the machine and runs pods on it:
//!
//! ```text
//! NodeSource -- adds and removes nodes --> NodeStore -- one reader task per node: health, workloads --> triggers
//! watch of Pods and Nodes -----------------------------------------------------------------------> events
//! triggers and events -- handler chain, one queue per node and per pod --> reconcile the node or the pod
//! ```
//!
//! A reader task only reads its machine, and triggers a reconciliation of each node or pod whose state on the machine changed. Pure
//! functions (`pod::decide`, `pod::status`, `node::object`) decide each write to Kubernetes and each step on the machine, each time
//! from the newest objects and the last read of the machine. So the result does not depend on the number or the order of triggers.
//!
//! | module | content |
//! |---|---|
//! | [`app_hosting`] | devices as nodes: from the configuration, files and custom resources, through the device drivers |
//! | [`vnode`] | the bases of Koupleless as nodes: from the tunnels, shared by several replicas |
//! | [`environment`] | the environment variables of containers, from `ConfigMap`s, Secrets and fields of the pod |

pub mod app_hosting;
mod back_end;
mod counters;
mod delay_queue;
pub mod environment;
mod error;
mod handler;
mod inventory;
mod kubelet;
mod machine;
mod metrics;
mod node;
mod node_store;
mod pod;
mod policy;
mod reach;
mod reader;
mod recorder;
mod reports;
mod shared;
mod source;
mod triggers;
pub mod vnode;

pub use back_end::{NodeBackEnd, PodRemoval, Reply};
pub use error::VirtualNodeError;
pub use handler::VirtualNodes;
pub use kubelet::{KubeletError, KubeletOptions, KubeletWords, Kubelets};
pub use metrics::{MachineState, VirtualNodeMetrics, VirtualNodeMetricsRegistry};
pub use node::{MachineInfo, NodeHealth, NodeSpec, PROVIDER_TAINT, Room};
pub use node_store::NodeStore;
pub use policy::Policy;
pub use shared::Dependencies;
pub use source::NodeSource;
