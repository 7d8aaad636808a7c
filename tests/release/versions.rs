//! Tests of the versions of Rust and Kubernetes that the documentation names.

use serde_json::Value;

use crate::{cargo, text};

const RUST_VERSION: &str = env!("CARGO_PKG_RUST_VERSION");

fn numbers(version: &str) -> Vec<u32> {
    version.split('.').map(|number| number.parse().unwrap()).collect()
}

#[test]
fn no_dependency_needs_a_newer_rust_than_ours() {
    // Without a platform, the crates of all others would have to be downloaded.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let metadata = cargo(&[
        "metadata",
        "--format-version",
        "1",
        "--locked",
        "--offline",
        "--filter-platform",
        &platform,
    ]);
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let newer: Vec<_> = packages
        .iter()
        .filter_map(|package| Some((package["name"].as_str()?, package["rust_version"].as_str()?)))
        .filter(|(_, version)| numbers(version)[..2] > numbers(RUST_VERSION)[..])
        .collect();
    assert!(packages.len() > 100 && newer.is_empty(), "newer than {RUST_VERSION}: {newer:?}");
}

#[test]
fn the_oldest_rust_is_the_one_that_the_readme_names_and_the_forge_compiles_with() {
    assert!(text("README.md").contains(&format!("(https://rustup.rs) {RUST_VERSION} or newer")));
    assert!(text(".github/workflows/ci.yml").contains(&format!("container: rust:{RUST_VERSION}-bookworm")));
}
