//! Validates the simulator's answers and the driver's requests against Cisco's YANG modules with `yanglint` (Debian:
//! libyang2-tools).
//!
//! The modules are not part of the repository: `STAFFETTA_YANG_DIR` names their folder.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod agreement;
mod answers;
#[path = "../restconf/client.rs"]
#[allow(dead_code, reason = "its other users take more of it")]
mod client;
mod golden;
mod samples;
mod yanglint;
