//! The tunnel over HTTP against a simulated base.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod answers;
mod modules;
mod reports;
mod world;
