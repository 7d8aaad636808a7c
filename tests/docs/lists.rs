//! The lists of crates and benchmarks.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::{ROOT, text};

/// The folders of the crates of handlers and drivers.
fn crates() -> Vec<String> {
    let of = |kind: &str| {
        let folders = fs::read_dir(Path::new(ROOT).join(kind)).unwrap();
        let names = folders.map(|folder| folder.unwrap().file_name().into_string().unwrap());
        names.map(|name| format!("{kind}/{name}")).collect::<Vec<_>>()
    };
    [of("handlers"), of("drivers")].concat()
}

#[test]
fn every_crate_is_in_the_picture_of_the_architecture_and_in_the_list_of_the_readme() {
    let architecture = text("docs/architecture.md");
    let picture = architecture.split("```text\n").nth(1).unwrap().split("\n```").next().unwrap();
    let readme = text("README.md");
    let (_, list) = readme.split_once("\n## Directories\n").unwrap();
    let crates = crates();
    assert!(crates.len() > 10, "the folders were read: {crates:?}");
    for (name, page) in [("docs/architecture.md", picture), ("README.md", list)] {
        let words: BTreeSet<_> = page.split([' ', '`', ',', '\n']).collect();
        let missing: Vec<_> = crates.iter().filter(|path| !words.contains(path.as_str())).collect();
        assert!(missing.is_empty(), "{name} does not name {missing:?}");
    }
}

#[test]
fn every_benchmark_has_a_row_and_a_section() {
    let manifest = text("Cargo.toml");
    let entries = manifest.split("[[bench]]\nname = \"").skip(1);
    let benchmarks: BTreeSet<_> = entries.map(|entry| entry.split('"').next().unwrap()).collect();
    let page = text("docs/benchmarks.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| [")?.split_once("](#"));
    // What is not a benchmark of cargo says so after the link.
    let listed: BTreeSet<_> = rows.filter(|(_, rest)| rest.contains(") | ")).map(|(name, _)| name).collect();
    assert_eq!(listed, benchmarks);
    let sections: BTreeSet<_> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert!(benchmarks.is_subset(&sections), "{sections:?}");
}
