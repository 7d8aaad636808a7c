//! Pods and services in a real OpenStack: Keystone, Neutron and Octavia as `devstack/real/openstack` starts them, with the
//! released controller. Only the agents of the nodes are simulated.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod access;
mod broken;
mod clusters;
mod disruptions;
mod faults;
mod killing;
#[path = "../support/kubectl.rs"]
mod kubectl;
#[path = "../support/kuryr.rs"]
mod kuryr;
mod large;
mod lost;
mod migration;
mod migration_of_namespaces;
mod multi_pool;
mod namespaces;
mod nested;
mod networks;
mod node;
mod outages;
mod pods;
mod policies;
mod pools;
#[path = "../support/process.rs"]
mod process;
mod projects;
mod ready;
#[path = "../support/node.rs"]
mod real_node;
mod service_killing;
mod services;
#[path = "../support/disruptions.rs"]
mod support;
mod world;
