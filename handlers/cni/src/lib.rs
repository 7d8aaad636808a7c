//! The handler `cni` and the server of the CNI plugin: connects the pods of one node to the network, as the annotation
//! `openstack.org/kuryr-vif` describes.
//!
//! The container runtime starts the plugin `staffetta-cni` for each pod. The plugin sends its command to the socket of this daemon. The
//! daemon knows the pods of its node from the API server, and binds their VIFs with the driver of their class.
//!
//! | module | holds |
//! |---|---|
//! | `acceptance` | what a pod must show for its VIFs to be bound |
//! | `handler` | the handler, which keeps the table of pods up to date |
//! | `pods` | the table of the pods of the node by UID, with their VIFs; wakes those who wait for a VIF |
//! | `records` | the record of each bound pod, in a file, which outlives the daemon |
//! | `daemon` | the commands `ADD`, `DEL`, `CHECK`, `STATUS` and `GC` |
//! | `target` | the arguments of a command |
//! | `server` | HTTP on a Unix socket or on loopback |

mod acceptance;
mod daemon;
mod handler;
mod locks;
mod options;
mod pods;
mod records;
mod server;
mod target;
#[cfg(test)]
mod tests;

pub use acceptance::Acceptance;
pub use daemon::{Bindings, CniDaemon, HANDLER, OnRequest};
pub use handler::registration;
pub use options::{CniDaemonOptions, Listen, ParseListenError};
pub use records::{RecordError, Records};
pub use server::{CniServer, ServeError};
