//! The whole relay in one process: the embedded API server, the controller as it ships, and a simulated world that the test
//! holds.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod dry_runs;
mod faults;
mod plans;
mod pods;
mod services;
mod world;
