//! What the documents say of the tree is true.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::path::{Path, PathBuf};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The Rust files of the workspace.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_fault_names_a_test_that_exists() {
    let mut files = Vec::new();
    for folder in ["src", "tests", "handlers", "drivers", "devstack"] {
        sources(&Path::new(ROOT).join(folder), &mut files);
    }
    let code: String = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let faults = fs::read_to_string(Path::new(ROOT).join("docs/faults.md")).unwrap();
    let rows = faults.lines().filter(|line| line.starts_with("| ") && line.ends_with("` |"));
    let tests: Vec<_> = rows.map(|row| row.trim_end_matches("` |").rsplit('`').next().unwrap()).collect();
    assert!(tests.len() > 25, "the tables were read");
    let missing: Vec<_> = tests.iter().filter(|test| !code.contains(&format!("fn {test}("))).collect();
    assert!(missing.is_empty(), "docs/faults.md names tests that do not exist: {missing:?}");
}
