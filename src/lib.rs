//! staffetta carries Kubernetes events through a relay of handlers to the drivers of other worlds.
//!
//! This library is the assembly of the program. An outside author needs [`run`] and [`assembly::registry`]: add a handler
//! or a driver to the registry, and run.
//!
//! From the outside in: [`cli`] parses, [`config`] reads the file, [`controller`] starts the [`watcher`] and feeds the
//! [`pipeline`], which [`assembly`] has filled with handlers and drivers. Of several processes, one works: [`leadership`].
//! [`rehearsal`] plans what one would do.

pub mod assembly;
pub mod cli;
pub mod config;
pub mod connect;
pub mod controller;
pub mod leadership;
pub mod metrics;
pub mod observers;
pub mod pipeline;
pub mod rehearsal;
mod report;
pub mod watcher;

mod admin;
mod client;
mod events;
mod health;
mod identity;
mod known;
mod lock;
mod run;
mod sources;
mod state;
mod sweeper;
mod telemetry;
#[cfg(test)]
mod testing;
mod trial;

pub use cli::main as run;
pub use run::RunError;
