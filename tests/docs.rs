//! Tests that the documentation agrees with the code.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
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

/// The tests in the last cells of the rows of `docs/faults.md`.
fn named_tests() -> BTreeSet<String> {
    let faults = fs::read_to_string(Path::new(ROOT).join("docs/faults.md")).unwrap();
    let rows = faults.lines().filter(|line| line.starts_with("| ") && line.ends_with("` |"));
    let cells = rows.map(|row| row.trim_end_matches(" |").rsplit(" | ").next().unwrap());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

#[test]
fn every_fault_names_a_test_that_exists() {
    let mut files = Vec::new();
    for folder in ["src", "tests", "handlers", "drivers", "devstack"] {
        sources(&Path::new(ROOT).join(folder), &mut files);
    }
    let code: String = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let tests = named_tests();
    assert!(tests.len() > 100, "the tables were read");
    let missing: Vec<_> = tests.iter().filter(|test| !code.contains(&format!("fn {test}("))).collect();
    assert!(missing.is_empty(), "docs/faults.md names tests that do not exist: {missing:?}");
}

#[test]
fn every_test_of_a_fault_is_named_by_a_row() {
    let named = named_tests();
    for folder in ["tests/faults", "tests/leadership", "tests/simulated"] {
        let mut files = Vec::new();
        sources(&Path::new(ROOT).join(folder), &mut files);
        let code: String = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
        let tests: Vec<_> = tests_in(&code).collect();
        assert!(tests.len() >= 6, "{folder} was read: {tests:?}");
        let unnamed: Vec<_> =
            tests.iter().filter(|test| !named.contains(**test) && !named.contains(bare(test))).collect();
        assert!(unnamed.is_empty(), "docs/faults.md has no row for these of {folder}: {unnamed:?}");
    }
}

/// The names of the tests in this code.
fn tests_in(code: &str) -> impl Iterator<Item = &str> {
    let after = code.split("#[tokio::test").skip(1).chain(code.split("#[test]").skip(1));
    after.filter_map(|rest| rest.split_once("fn ")?.1.split('(').next())
}

/// The name of a test without the suffix of its server.
fn bare(test: &str) -> &str {
    let server = ["_on_a_real_server", "_on_the_embedded_server"];
    server.iter().find_map(|server| test.strip_suffix(server)).unwrap_or(test)
}

/// The string literals that functions with this signature return, outside of tests.
fn answers(code: &str, signature: &str) -> BTreeSet<String> {
    let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let bodies = code.split(signature).skip(1).map(|rest| rest.split("\n    }\n").next().unwrap());
    let words = bodies.flat_map(|body| body.split('"').skip(1).step_by(2));
    let is_reason = |word: &&str| word.starts_with(|first: char| first.is_ascii_uppercase());
    words.filter(is_reason).map(str::to_owned).collect()
}

/// The signatures of the functions that return reasons of Events.
const REASONS: [&str; 5] = [
    "fn reason(&self) -> &'static str {",
    "fn properties(self) -> (&'static str, &'static str, bool) {",
    "fn class(&self) -> (bool, Option<Duration>, &'static str) {",
    "fn note(self, handler: ",
    "fn words(self) -> (&'static str, &'static str) {",
];

/// The code before reasons of Events that a device causes.
const DEVICE_REASONS: [&str; 4] =
    [".named(\"", "after_back_off(\"", "Fail { reason: \"", "PodProgress::Failing {\n        reason: \""];

#[test]
fn every_reason_of_an_event_is_explained_and_no_other() {
    let mut files = Vec::new();
    for folder in ["handlers", "drivers", "src"] {
        sources(&Path::new(ROOT).join(folder), &mut files);
    }
    files.retain(|file| {
        !file.ends_with("tests.rs") && !file.components().any(|part| part.as_os_str() == "tests")
    });
    let mut reasons = BTreeSet::new();
    for file in &files {
        let code = fs::read_to_string(file).unwrap();
        for signature in REASONS {
            reasons.extend(answers(&code, signature));
        }
        for before in DEVICE_REASONS {
            let words = code.split("#[cfg(test)]").next().unwrap().split(before).skip(1);
            reasons.extend(words.filter_map(|rest| rest.split('"').next()).map(str::to_owned));
        }
        let of_notes = [
            "src/pipeline/report.rs",
            "cni/src/daemon.rs",
            "policy/mod.rs",
            "prefix-ip/src/error.rs",
            "lb/mod.rs",
            "lbaasspec/mod.rs",
            "virtual-node/src/error.rs",
            "virtual-node/src/reach.rs",
            "vnode/tracker/mod.rs",
            "src/kuryr.rs",
        ];
        if of_notes.iter().any(|name| file.ends_with(name)) {
            let constants =
                code.lines().filter_map(|line| line.strip_prefix("pub(crate) const ")?.split('"').nth(1));
            reasons.extend(constants.map(str::to_owned));
        }
    }
    let document = fs::read_to_string(Path::new(ROOT).join("docs/events.md")).unwrap();
    let (_, table) = document.split_once("\n## Reasons\n").unwrap();
    let rows: Vec<_> = table.lines().filter_map(|line| line.strip_prefix("| `")).collect();
    let explained: BTreeSet<_> = rows.iter().map(|row| row.split('`').next().unwrap().to_owned()).collect();
    assert!(
        reasons.contains("QuotaExceeded") && reasons.contains("Recovered"),
        "the code was read: {reasons:?}"
    );
    assert_eq!(reasons, explained, "docs/events.md and the code differ");
    assert!(rows.is_sorted() && rows.iter().all(|row| row.matches(" | ").count() == 2), "{rows:#?}");
}
