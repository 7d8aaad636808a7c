//! Addresses for pods from the network interface of their node.
//!
//! | module | content |
//! |---|---|
//! | [`settings`] | the options in the `ConfigMap` `amazon-vpc-cni` |
//! | [`targets`] | the size of a node's pool that these options require |
//! | [`address`] | the addresses of a pool, and the annotation of a pod |
//! | [`node_pool`] | the state of one node: which addresses it has, which pod holds which |

pub mod address;
pub mod node_pool;
pub mod settings;
pub mod targets;
