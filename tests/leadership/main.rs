//! Leader election as a black box: processes of the program, each behind a proxy that records its requests, on the embedded
//! server and on a real one.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../support/process.rs"]
mod process;

mod fence;
mod late;
mod strangers;
mod succession;
mod trouble;
mod world;
