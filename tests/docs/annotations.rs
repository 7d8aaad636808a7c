//! `docs/annotations.md` and the keys in the code.

use std::collections::BTreeSet;
use std::fs;

use crate::{sources, text};

/// Domains that only examples use.
const OF_EXAMPLES: [&str; 1] = ["example.com"];

/// The code of these folders that ships.
fn shipped() -> String {
    let files = sources(&["src", "handlers", "drivers"]);
    let is_test = |name: &std::ffi::OsStr| {
        ["tests", "tests.rs", "testing", "testing.rs", "benches"].iter().any(|test| name == *test)
    };
    let shipped = files.iter().filter(|file| !file.iter().any(is_test));
    let without_tests = shipped.map(|file| {
        let code = fs::read_to_string(file).unwrap();
        code.split("#[cfg(test)]").next().unwrap().to_owned()
    });
    without_tests.collect()
}

/// The string literals of the code, without comments.
fn literals(code: &str) -> BTreeSet<&str> {
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.flat_map(|line| line.split('"').skip(1).step_by(2)).collect()
}

/// Returns `true` if the literal is the key of an annotation, label, taint or finalizer, or a prefix of such keys.
fn is_key(literal: &&str) -> bool {
    let Some((domain, name)) = literal.split_once('/') else { return false };
    let parts: Vec<_> = domain.split('.').collect();
    let word = |part: &&str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    let is_network = domain.starts_with(|first: char| first.is_ascii_digit());
    let is_domain =
        parts.len() > 1 && parts.iter().all(word) && !is_network && !domain.contains(char::is_uppercase);
    let version = name.starts_with('v') && name[1..].starts_with(|digit: char| digit.is_ascii_digit());
    let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c));
    is_domain && is_name && !version && !OF_EXAMPLES.iter().any(|example| domain.ends_with(example))
}

/// The keys in the first cells of the tables of the page.
fn explained(page: &str) -> BTreeSet<&str> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.flat_map(|row| row.split(" | ").next().unwrap().split('`').step_by(2)).collect()
}

#[test]
fn every_key_of_the_code_is_explained_and_no_other() {
    let page = text("docs/annotations.md");
    let code = shipped();
    let literals = literals(&code);
    let keys: BTreeSet<_> = literals.iter().copied().filter(is_key).collect();
    assert!(keys.len() > 40 && keys.contains("openstack.org/kuryr-vif"), "the code was read: {keys:?}");
    let explained = explained(&page);
    let missing: Vec<_> = keys.difference(&explained).collect();
    assert!(missing.is_empty(), "docs/annotations.md has no row for {missing:?}");
    let unused: Vec<_> = explained.difference(&literals).collect();
    assert!(
        unused.is_empty(),
        "docs/annotations.md has rows for keys that the code does not have: {unused:?}"
    );
}
