//! A device as its clients see it, over the wire.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod client;
mod config;
mod control;
mod faults;
mod oper;
mod operations;
mod program;
mod reachability;
mod tls;
mod who;
