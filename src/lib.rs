//! staffetta is a Kubernetes controller. It passes the events of a cluster through a chain of handlers. The handlers call drivers of
//! external systems, and write the results back to the Kubernetes objects.
//!
//! This library assembles the program. To build a program with your own handlers or drivers, you need [`assembly::registry`], which
//! returns all handlers, drivers and configuration sections of staffetta by name, and [`run()`], which parses the command line and runs
//! the program.
//!
//! The path of an event: [`watcher`] lists and watches the objects of all kinds that the enabled handlers need, and [`pipeline`] passes
//! each event to the chain of each handler.
//!
//! The other modules: [`cli`] parses the command line, [`config`] loads the options, [`connect`] connects to the API server,
//! [`controller`] starts all parts and elects the leader, [`dry_run`] plans changes without making them, [`cleanup`] releases external
//! resources that another cluster left, [`uninstall`] removes finalizers, and [`migrate`] takes a cluster over from Kuryr. `metrics`
//! contains the Prometheus metrics, `check` checks an installation, and `webhook` serves the admission webhook.

pub mod assembly;
pub mod cleanup;
pub mod cli;
pub mod config;
pub mod connect;
pub mod controller;
pub mod dry_run;
pub mod migrate;
pub mod pipeline;
pub mod term;
pub mod uninstall;
pub mod watcher;

mod admin;
mod check;
mod client;
mod cluster;
mod cni_daemon;
mod connections;
mod events;
mod health;
mod identity;
mod lock;
mod metrics;
mod retry;
mod run;
mod state;
mod telemetry;
#[cfg(test)]
mod testing;
mod traces;
mod version;
mod webhook;

pub use cli::main as run;
pub use run::RunError;
