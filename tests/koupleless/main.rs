//! Bases of Koupleless as nodes, as a black box: processes of the program on the embedded API server, and simulated bases that
//! count what they are asked.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../support/process.rs"]
mod process;

mod bases;
mod modules;
mod peers;
mod replicas;
mod world;
