//! The whole relay in one process: the embedded API server, the controller as it ships, and a simulated world that the test
//! holds.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod admin;
mod alerts;
mod dry_runs;
mod exposition;
mod faults;
mod monitoring;
mod plans;
mod pods;
mod policies;
mod promql;
mod services;
mod status;
mod world;
