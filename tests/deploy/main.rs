//! Tests of etc/deploy: the manifests match the program, the image is complete, and the program works on a real cluster with the
//! rights that the manifests grant.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../support/kubectl.rs"]
mod kubectl;
#[path = "../support/process.rs"]
mod process;
#[path = "../support/node.rs"]
mod real_node;

mod admission;
mod chart;
mod check;
mod cluster;
mod cni;
mod container;
mod drivers;
mod helm;
mod image;
mod manifests;
mod openstack;
mod pods;
mod prefixes;
mod removal;
mod rendered;
mod rights;
mod site;
mod webhook;

const PROGRAM: &str = env!("CARGO_BIN_EXE_staffetta");

/// The folder of the manifests.
fn folder() -> &'static std::path::Path {
    std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/etc/deploy"))
}
