//! `docs/faults.md` and the tests.

use std::collections::BTreeSet;
use std::fs;

use crate::{sources, text};

/// The tests in the last cells of the rows of `docs/faults.md`.
fn named_tests() -> BTreeSet<String> {
    let faults = text("docs/faults.md");
    let rows = faults.lines().filter(|line| line.starts_with("| ") && line.ends_with("` |"));
    let cells = rows.map(|row| row.trim_end_matches(" |").rsplit(" | ").next().unwrap());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

#[test]
fn every_fault_names_a_test_that_exists() {
    let files = sources(&["src", "tests", "handlers", "drivers", "devstack", "examples"]);
    let code: String = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let tests = named_tests();
    assert!(tests.len() > 100, "the tables were read");
    let missing: Vec<_> = tests.iter().filter(|test| !code.contains(&format!("fn {test}("))).collect();
    assert!(missing.is_empty(), "docs/faults.md names tests that do not exist: {missing:?}");
}

#[test]
fn every_test_of_a_fault_is_named_by_a_row() {
    let named = named_tests();
    for folder in ["tests/program/faults", "tests/program/leadership", "tests/simulated"] {
        let files = sources(&[folder]);
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
