//! What the chain promises to whoever plugs a handler in, as a black box.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod corners;
mod failures;
mod meter;
mod order;
mod queues;
mod recovery;
mod reports;
mod sources;
mod standings;
mod support;
