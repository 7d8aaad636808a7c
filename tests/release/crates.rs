//! Tests of the crates for authors.

use std::process::Command;

use serde_json::Value;

use crate::cargo;

#[test]
fn the_version_of_kubernetes_is_chosen_by_the_program_of_an_author_and_by_no_library() {
    let tree = ["tree", "--locked", "--offline", "--package", "outside", "--prefix", "depth"];
    let tree = cargo(&[&tree[..], &["--edges", "features", "--invert", "k8s-openapi"]].concat());
    let (_, users) = tree.split_once("1k8s-openapi feature \"v1_33\"\n").unwrap();
    let users: Vec<_> = users.lines().take_while(|line| !line.starts_with('1')).collect();
    assert!(users[0].starts_with("2outside "), "{users:?}");
    assert_eq!(users.iter().filter(|user| user.starts_with('2')).count(), 1, "{users:?}");
    assert_eq!(tree.matches("1k8s-openapi feature \"v1_").count(), 1, "{tree}");
}

/// Packs all crates as for the registry, which refuses incomplete manifests and unpublished dependencies.
#[test]
fn the_crates_of_the_program_can_be_packaged_with_their_license() {
    let metadata = cargo(&["metadata", "--format-version", "1", "--locked", "--offline", "--no-deps"]);
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    let published =
        metadata["packages"].as_array().unwrap().iter().filter(|package| package["publish"].is_null());
    let names: Vec<_> = published.map(|package| package["name"].as_str().unwrap()).collect();
    assert!(
        ["staffetta", "staffetta-handler", "staffetta-driver"].iter().all(|name| names.contains(name)),
        "{names:?}"
    );

    let folder = tempfile::tempdir().unwrap();
    let target = ["--target-dir", folder.path().to_str().unwrap()];
    let options = ["package", "--locked", "--offline", "--no-verify", "--allow-dirty"];
    let packages = names.iter().flat_map(|name| ["--package", name]);
    cargo(&options.into_iter().chain(target).chain(packages).collect::<Vec<_>>());
    for name in names {
        let archive = format!("package/{name}-{}.crate", env!("CARGO_PKG_VERSION"));
        let files = Command::new("tar").arg("-tf").arg(folder.path().join(&archive)).output().unwrap();
        let files = String::from_utf8(files.stdout).unwrap();
        assert!(
            ["/LICENSE\n", "/README.md\n", "/src/lib.rs\n"].iter().all(|file| files.contains(file)),
            "{archive}: {files}"
        );
    }
}
