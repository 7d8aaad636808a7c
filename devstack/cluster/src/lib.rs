//! Just enough of a cluster's controllers for a demonstration and for end-to-end tests.
//!
//! An API server alone keeps objects; it takes these to make them live. They are a plain client of the API and run
//! against any server. What they leave out is left out on purpose: this is no Kubernetes.
//!
//! | module | from | to |
//! |---|---|---|
//! | [`deployments`] | Deployment | `ReplicaSets`, its status, the rolling update |
//! | [`replicasets`] | `ReplicaSet` | Pods, its status |
//! | [`scheduler`] | Pod | its node, through the binding subresource |
//! | [`kubelet`] | Pod | Running as soon as it has an address; gone when it is to be deleted |
//! | [`endpoints`] | Service, Pods | `EndpointSlices` and Endpoints |
//! | [`nodes`] | nothing | Nodes, Ready and with a lease |
//!
//! Each is level-triggered: a pure function looks at all there is and says which [calls](call) are due; the
//! [shell](shell) makes them and asks again when something has changed. Nothing is kept but [views](view) of the API.
//! What a garbage collector does (the dependents of an owner, the content of a namespace) is the server's own work.

mod call;
mod cluster;
mod deployments;
mod endpoints;
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
