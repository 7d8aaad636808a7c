//! The guarantees of virtual nodes, through the whole controller and an API server, on in-memory devices that the test controls.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod beside;
mod custom_resource;
mod departures;
mod devices;
mod dry_runs;
mod machines;
mod nodes;
mod outages;
mod pods;
mod world;
