//! staffetta is a Kubernetes controller: it passes the events of a cluster through a chain of handlers, which call drivers of
//! external systems and write the results back to the objects.
//!
//! This library assembles the program. An external handler or driver needs [`assembly::registry`], which returns all handlers,
//! drivers and configuration sections by name, and [`run`], which parses the command line and runs the program.
//!
//! The path of an event: [`watcher`] lists and watches the enabled kinds, and [`pipeline`] passes each event to the chain of each
//! handler. Around it: [`cli`] parses the command line, [`config`] loads the options, [`connect`] connects to the API server,
//! [`controller`] starts everything and elects the leader, [`dry_run`] plans changes without making them, and [`metrics`]
//! counts.

pub mod assembly;
pub mod cli;
pub mod config;
pub mod connect;
pub mod controller;
pub mod dry_run;
pub mod metrics;
pub mod observers;
pub mod pipeline;
pub mod term;
pub mod watcher;

mod admin;
mod client;
mod clock;
mod events;
mod health;
mod identity;
mod lock;
mod retry;
mod run;
mod state;
mod telemetry;
#[cfg(test)]
mod testing;

pub use cli::main as run;
pub use run::RunError;
