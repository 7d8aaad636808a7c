//! The start of the program: creates all handlers and drivers, starts all parts and elects the leader.

pub mod assembly;
#[cfg(feature = "cni")]
pub(crate) mod cni_daemon;
pub mod controller;
pub(crate) mod run;
