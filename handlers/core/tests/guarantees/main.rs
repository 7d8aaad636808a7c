//! The guarantees of the chain, tested as a black box.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod corners;
mod entries;
mod failures;
mod message;
mod order;
mod outages;
mod queue_metrics;
mod queues;
mod recovery;
mod reports;
mod sources;
mod support;
