//! Pods on simulated IOS-XE devices, through the whole controller: faults are reported, nothing is left on a device, and no
//! outage makes a running pod fail.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bad_input;
mod cluster;
mod custom_resource;
mod killing;
#[path = "../support/kubectl.rs"]
mod kubectl;
mod life;
mod outages;
#[path = "../support/process.rs"]
mod process;
mod refusals;
mod world;
