//! Addresses for pods from the network interface of their node.
//!
//! | module | content |
//! |---|---|
//! | [`settings`] | the options in the `ConfigMap` `amazon-vpc-cni` |
//! | [`targets`] | the size of a node's pool that these options require |
//! | [`address`] | the addresses of a pool, and the annotation of a pod |
//! | [`node_pool`] | the state of one node: which addresses it has, which pod holds which |
//! | [`nodes`] | the states of all nodes |
//! | [`worker`] | calls the provider for all nodes: assigns blocks, removes them, and finds drift |

pub mod address;
pub mod node_pool;
pub mod nodes;
pub mod settings;
pub mod targets;
pub mod worker;
