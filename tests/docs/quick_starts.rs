//! The quick starts: their files and commands, and the configurations of all pages.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::page::Page;
use crate::{ROOT, files};

const PROGRAM: &str = env!("CARGO_BIN_EXE_staffetta");

/// The call of the program in a quick start.
const CALL: &str = "cargo run --release -- ";

/// The pages below a folder of the repository.
fn pages(folder: &str) -> Vec<Page> {
    let paths = files(&Path::new(ROOT).join(folder), "md");
    paths.iter().map(|path| Page::read(path.strip_prefix(ROOT).unwrap().to_str().unwrap())).collect()
}

/// A folder with the manifests and the files of the page.
fn site(page: &Page) -> TempDir {
    let site = tempfile::tempdir().unwrap();
    let copied = Command::new("cp")
        .args(["-r", "--parents", "etc/deploy"])
        .arg(site.path())
        .current_dir(ROOT)
        .status()
        .unwrap();
    assert!(copied.success());
    page.write_files(site.path());
    site
}

fn run(command: &str, site: &TempDir) -> Output {
    Command::new("bash").args(["-c", command]).current_dir(site.path()).output().unwrap()
}

#[test]
fn every_call_of_the_program_in_a_quick_start_prints_what_is_shown() {
    let mut calls = 0;
    for page in pages("docs/start") {
        let site = site(&page);
        for (command, shown) in page.commands().into_iter().filter(|(command, _)| command.contains(CALL)) {
            let output = run(&command.replace(CALL, &format!("{PROGRAM} ")), &site);
            let printed = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && printed == shown, "{}: {command}: {output:?}", page.path);
            calls += 1;
        }
    }
    assert!(calls >= 4, "the pages were read: {calls} calls");
}

#[test]
#[ignore = "needs kubectl: devstack/real/test"]
fn every_kustomization_that_a_quick_start_applies_can_be_rendered_with_kubectl() {
    let mut applied = 0;
    for page in pages("docs/start") {
        let site = site(&page);
        for (command, _) in page.commands() {
            let Some(folder) = command.strip_prefix("kubectl apply -k ") else { continue };
            let output = run(&format!("kubectl kustomize {folder}"), &site);
            let manifests = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{}: {command}: {output:?}", page.path);
            let configuration = fs::read_to_string(site.path().join(folder).join("staffetta.toml")).unwrap();
            let line = configuration.lines().find(|line| !line.is_empty()).unwrap();
            assert!(manifests.contains(line), "{}: {command}: {manifests}", page.path);
            applied += 1;
        }
    }
    assert!(applied >= 5, "the pages were read: {applied} kustomizations");
}

#[test]
fn every_configuration_in_a_page_consists_of_options_that_exist() {
    let mut checked = 0;
    // The page of drivers names one of an outside program, which the test `outside` runs.
    for page in pages("docs").iter().filter(|page| page.path != "docs/start/driver.md") {
        for configuration in page
            .blocks("toml")
            .filter(|body| !["[dependencies]", "{{#include"].iter().any(|other| body.contains(other)))
        {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("staffetta.toml"), configuration).unwrap();
            let output = run(&format!("{PROGRAM} config show --config staffetta.toml"), &folder);
            assert!(output.status.success(), "{}: {configuration}{output:?}", page.path);
            checked += 1;
        }
    }
    assert!(checked >= 10, "the pages were read: {checked} configurations");
}
