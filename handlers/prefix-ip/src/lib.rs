//! Addresses for pods from the network interface of their node.
//!
//! | module | content |
//! |---|---|
//! | [`settings`] | the options in the `ConfigMap` `amazon-vpc-cni` |
//! | [`targets`] | the size of a node's pool that these options require |
//! | [`address`] | the addresses of a pool, and the annotation of a pod |
//! | [`admission`] | the pods that need an address, and how they are made to request it |
//! | [`node_pool`] | the state of one node: which addresses it has, which pod holds which |
//! | [`cluster`] | the nodes, pods and options of the cluster, from their watches |
//! | [`error`] | the errors of the handler |
//! | [`handler`] | the handler: gives pods their addresses, and nodes their capacity |
//! | [`nodes`] | the states of all nodes |
//! | [`published`] | reads the addresses in the annotations of pods |
//! | [`source`] | the background work of the handler |
//! | [`waiting`] | the pods that wait for an address |
//! | [`worker`] | calls the provider for all nodes: assigns blocks, removes them, and finds drift |

pub mod address;
pub mod admission;
pub mod cluster;
pub mod error;
pub mod handler;
pub mod node_pool;
pub mod nodes;
pub mod published;
pub mod settings;
pub mod source;
pub mod targets;
pub mod waiting;
pub mod worker;

/// The name of the handler.
pub const HANDLER: &str = "prefix_ip";
