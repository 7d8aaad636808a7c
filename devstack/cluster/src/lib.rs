//! The controllers of a Kubernetes cluster, reduced to the needs of a demonstration and of end-to-end tests.
//!
//! An API server alone only stores objects; these controllers act on them. They are plain clients of the API and run against any
//! server. They omit features on purpose and do not replace Kubernetes.
//!
//! | module | from | to |
//! |---|---|---|
//! | `deployments` | Deployment | `ReplicaSets`, its status, the rolling update |
//! | `replicasets` | `ReplicaSet` | Pods, its status |
//! | `scheduler` | Pod | its node, through the binding subresource |
//! | `kubelet` | Pod | Running as soon as it has an address; gone when it is to be deleted |
//! | `endpoints` | Service, Pods | `EndpointSlices` and Endpoints |
//! | `nodes` | nothing | Nodes, Ready and with a lease |
//!
//! Each controller is level-triggered: a pure function reads all objects and returns the calls that are due. The
//! module `shell` sends them and runs the function again when something has changed. The only state are caches of the
//! API, and the bindings that the cache of the scheduler does not show yet. Garbage collection (the dependents of an
//! owner, the content of a namespace) is the work of the server.

mod call;
mod cluster;
mod deployments;
mod endpoints;
mod interface_address;
mod kubelet;
mod names;
mod nodes;
mod options;
mod owners;
mod pods;
mod replicasets;
mod scheduler;
mod shell;
mod view;
mod vif;

#[cfg(test)]
mod testing;

pub use cluster::Cluster;
pub use options::{Options, Parts, PodStart};
