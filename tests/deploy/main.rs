//! etc/deploy: the manifests fit the program, the image has all that it needs, and on a real cluster it works with the rights
//! that it gets there.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../support/kubectl.rs"]
mod kubectl;
#[path = "../support/process.rs"]
mod process;

mod cluster;
mod container;
mod drivers;
mod image;
mod manifests;
mod openstack;
mod removal;
mod rights;
mod site;

const PROGRAM: &str = env!("CARGO_BIN_EXE_staffetta");

/// The folder of the manifests.
fn folder() -> &'static std::path::Path {
    std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/etc/deploy"))
}
