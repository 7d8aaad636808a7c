//! `cargo devstack -- --once`, as its user runs it.

use std::process::{Command, Output};

fn once(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_staffetta-devstack"));
    command.arg("--once").args(arguments).output().expect("the demo was built for this test")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn all_of_it_comes_about_and_the_summary_says_so() {
    let output = once(&[]);
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{}\n{shown}\n{}", output.status, text(&output.stderr));
    let (_, summary) = shown.split_once("STEP").expect("there is a summary");
    let steps = summary.lines().filter(|line| line.starts_with("ok  ")).count();
    assert_eq!(steps, 14, "{summary}");
    assert!(summary.contains("Everything converged."), "{summary}");
    for happening in [
        "waits for a VIF",
        "VIF requested, 10.20.0.",
        "VIF active, 10.10.0.",
        "16 members, public 203.0.113.",
        "runs on router-1, 192.0.2.",
        "runs on router-2, 192.0.2.",
        "waits for an address of its node",
        "runs, 10.11.0.",
        "is to be loaded on vnode.base-4.demo",
        "runs on vnode.base-4.demo, 127.0.0.1",
    ] {
        assert!(shown.contains(happening), "{happening} was not shown:\n{shown}");
    }
}

#[test]
fn without_enough_time_it_ends_with_1_and_the_reasons() {
    let output = once(&["--timeout", "0"]);
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{shown}");
    assert!(shown.contains("failed  a shop of 18 pods"), "{shown}");
    let (_, log) = shown.split_once("log and configuration: ").expect("it says where the log is");
    let folder = log.lines().next().expect("it is a line");
    assert!(std::path::Path::new(folder).join("log").is_file(), "the log is kept: {folder}");
    std::fs::remove_dir_all(folder).expect("it is ours");
}

#[test]
fn a_kubeconfig_that_exists_is_not_overwritten() {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let path = folder.path().join("kubeconfig");
    std::fs::write(&path, "mine").expect("the folder is ours");
    let output = once(&["--kubeconfig", &path.display().to_string()]);
    let reported = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{reported}");
    assert!(reported.contains("(`--kubeconfig`)") && reported.contains("exists"), "{reported}");
    assert_eq!(std::fs::read_to_string(&path).expect("it is still there"), "mine");
}

#[test]
fn an_address_that_is_taken_is_named_with_its_option() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = taken.local_addr().expect("it listens").to_string();
    let output = once(&["--listen", &address]);
    let reported = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{reported}");
    assert!(reported.contains(&address) && reported.contains("(`--listen`)"), "{reported}");
}
