//! Tests that the documentation agrees with the code.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::path::{Path, PathBuf};

mod annotations;
mod calls;
mod commands;
mod custom_resources;
mod events;
mod faults;
mod links;
mod lists;
mod names;
#[path = "../support/page.rs"]
mod page;
mod quick_starts;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

const PROGRAM: &str = env!("CARGO_BIN_EXE_staffetta");

/// The files below a folder with this extension.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|of_path| of_path == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The Rust files below these folders of the repository.
fn sources(folders: &[&str]) -> Vec<PathBuf> {
    folders.iter().flat_map(|folder| files(&Path::new(ROOT).join(folder), "rs")).collect()
}

/// The text of a file of the repository.
fn text(path: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(path)).unwrap()
}
