//! Tests of what a release promises: the versions of Rust and Kubernetes, and the crates for authors.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod crates;

use std::fs;
use std::path::Path;

/// Reads a file of the repository.
fn text(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}
