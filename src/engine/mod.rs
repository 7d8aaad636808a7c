//! The engine: carries events from the watches to the handlers, and writes their results.

pub(crate) mod client;
pub(crate) mod cluster;
pub(crate) mod events;
pub(crate) mod identity;
#[cfg(not(feature = "webhook"))]
pub(crate) mod no_webhook;
pub mod pipeline;
pub mod term;
#[cfg(test)]
pub(crate) mod testing;
pub mod watcher;
#[cfg(feature = "webhook")]
pub(crate) mod webhook;

#[cfg(not(feature = "webhook"))]
pub(crate) use no_webhook as webhook;
