//! What devices answer, and what is sent to them, held against the YANG modules by a validator that is not ours.
//!
//! The modules are not part of the repository: `STAFFETTA_YANG_DIR` names their folder. Without it, or without the program
//! `yanglint` (Debian: libyang2-tools), these tests say that they were skipped.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod agreement;
mod answers;
#[path = "../restconf/client.rs"]
#[allow(dead_code, reason = "its other users take more of it")]
mod client;
mod golden;
mod samples;
mod yanglint;
