//! Tests of what a release promises: the versions of Rust and Kubernetes, the crates for authors, and the files of a release.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod chart;
mod crates;
mod files;
mod versions;

use std::fs;
use std::path::Path;
use std::process::Command;

/// Reads a file of the repository.
fn text(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// Runs cargo to its good end, and returns what it prints.
fn cargo(arguments: &[&str]) -> String {
    let output =
        Command::new(env!("CARGO")).current_dir(env!("CARGO_MANIFEST_DIR")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
