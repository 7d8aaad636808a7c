//! The tunnel over MQTT against a real broker.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod base;
mod broker;
mod connections;
mod messages;
mod modules;
mod simulated;
mod slow;
mod world;
