//! The CNI plugin of staffetta, and what it shares with the daemon: the messages between both, and the configuration list.
//!
//! The container runtime starts the plugin for each command, so it depends on nothing but `serde`. It passes the command to the daemon on
//! the node, and turns the answer into a result of the [CNI specification](https://github.com/containernetworking/cni/blob/main/SPEC.md).
//!
//! | module | holds |
//! |---|---|
//! | [`message`] | requests and errors on the socket of the daemon |
//! | [`conflist`] | the configuration list that the runtime reads, and its atomic installation |
//! | [`command`] | the commands of the plugin |
//! | [`result`](mod@result) | results of the specification, in the version that the runtime asks for |
//! | `vif` | the fields of a VIF that a result contains |
//! | `client` | HTTP over a socket |

mod client;
pub mod command;
pub mod conflist;
pub mod error;
pub mod message;
pub mod result;
mod version;
mod vif;

pub use version::{VERSIONS, Version};
