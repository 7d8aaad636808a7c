//! Nodes that some other machine stands for: a router, a Java process, anything that runs what pods ask for and has no kubelet.
//!
//! One implementation, [`VirtualNodes`], keeps the Node objects, their leases and the status of their pods. It is made of a
//! [`NodeSource`] (which nodes exist, at run time too) and a [`NodeBackEnd`] a node (what that machine can do):
//!
//! ```text
//! NodeSource -- which nodes exist --> fleet -- one reader a node: what it has, what runs there --> signals
//! watch of Pods and Nodes ------------------------------------------------------------------> events
//! signals and events -- the chain, a queue a node and a queue a pod --> settle a node, settle a pod
//! ```
//!
//! A reader only reads, and says what changed. What is written, in Kubernetes and on the machine, is decided by pure functions of
//! the pod, what was read and the time (`pod::decide`, `pod::status`, `node::object`), each time anew: nothing depends on how
//! often or in which order somebody says that there is something to do.
//!
//! | module | what it adds |
//! |---|---|
//! | [`app_hosting`] | devices as nodes: from files and custom resources, through the drivers of devices |
//! | [`environment`] | the environment of containers, from `ConfigMap`s, Secrets and fields |

mod agenda;
pub mod app_hosting;
mod back_end;
mod board;
pub mod environment;
mod error;
mod figures;
mod fleet;
mod handler;
mod inventory;
mod kubelet;
mod machine;
mod node;
mod notes;
mod orphans;
mod pod;
mod policy;
mod reach;
mod reader;
mod shared;
mod signals;
mod source;
mod workload;

pub use back_end::{NodeBackEnd, Reply};
pub use board::{FigureBoard, VirtualNodeFigures};
pub use error::VirtualNodeError;
pub use fleet::Fleet;
pub use handler::{VirtualNodes, Wiring};
pub use kubelet::{KubeletError, KubeletOptions, KubeletWords, Kubelets};
pub use machine::Machine;
pub use node::{KubeletEndpoint, MachineInfo, NodeHealth, NodeSpec, PROVIDER_TAINT, Room};
pub use policy::Policy;
pub use signals::{NodeDue, PodDue};
pub use source::{Intake, NodeSource};
pub use workload::{ContainerSight, ContainerState, Workload, Workloads};
