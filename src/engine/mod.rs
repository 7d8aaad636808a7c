//! What carries events from the watch to the handlers, and what writes their results.

pub(crate) mod client;
pub(crate) mod cluster;
pub(crate) mod events;
pub(crate) mod identity;
pub mod pipeline;
pub mod term;
#[cfg(test)]
pub(crate) mod testing;
pub mod watcher;
pub(crate) mod webhook;
