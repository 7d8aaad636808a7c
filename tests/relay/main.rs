//! The whole controller in one process: the embedded API server, the released controller, and a simulated network that the test
//! controls.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod admin;
mod alerts;
mod cleanup;
mod dry_runs;
mod exposition;
mod faults;
mod installations;
#[path = "../support/kuryr.rs"]
mod kuryr;
mod migration;
mod migration_command;
mod migration_of_namespaces;
mod monitoring;
mod plans;
mod pods;
mod policies;
mod promql;
mod selection;
mod services;
mod status;
mod world;
