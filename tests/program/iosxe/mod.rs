//! Pods on simulated IOS-XE devices, through the whole controller: faults are reported, nothing is left on a device, and no
//! outage makes a running pod fail.

mod absence;
mod bad_input;
mod cluster;
mod custom_resource;
mod killing;
mod life;
mod outages;
mod refusals;
mod world;
