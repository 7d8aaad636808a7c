//! The handler of an external author, against the embedded server.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../../../tests/support/page.rs"]
mod page;
#[path = "../../../tests/support/process.rs"]
mod process;

use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use kube::{Client, Config};
use page::Page;
use process::{Process, eventually};
use serde_json::json;
use staffetta_apiserver::{ApiServer, Options};

const PROGRAM: &str = env!("CARGO_BIN_EXE_greeter");

#[tokio::test]
async fn a_pod_is_greeted() {
    let server = ApiServer::start(Options::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let configuration = "[kubernetes]\nenabled_handlers = [\"greeter\"]\n";
    let mut process =
        Process::start_as_it_is(Path::new(PROGRAM), folder.path(), configuration, &server.kubeconfig()).await;
    process.ready().await;
    let client = Client::try_from(Config::new(server.url().parse().unwrap())).unwrap();
    let pods = Api::<Pod>::namespaced(client, "default");
    let pod =
        json!({ "metadata": { "name": "web" }, "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    eventually("the pod is greeted", async || {
        let annotations = pods.get("web").await.unwrap().metadata.annotations.unwrap_or_default();
        annotations.get("example.com/greeting").is_some_and(|greeting| greeting == "hello")
    })
    .await;
    assert!(process.terminate().await.success());
}

/// The commands of the quick start that need no cluster.
#[tokio::test]
async fn the_commands_of_the_quick_start_list_the_handler() {
    let mut printed = String::new();
    for (command, _) in Page::read("../../docs/start/handler.md").commands() {
        let call = command.strip_prefix("target/debug/greeter ");
        let Some(arguments) = call.filter(|arguments| !arguments.starts_with("run ")) else { continue };
        let mut process = tokio::process::Command::new(PROGRAM);
        process.env("STAFFETTA_KUBERNETES__ENABLED_HANDLERS", "greeter");
        let output = process.args(arguments.split(' ')).output().await.unwrap();
        assert!(output.status.success(), "{command}");
        printed += &String::from_utf8(output.stdout).unwrap();
    }
    assert!(printed.lines().any(|line| line.starts_with("greeter ") && line.contains(" yes ")), "{printed}");
}

#[test]
fn the_readme_shows_the_handler_as_it_is_and_it_is_short() {
    let source = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/main.rs")).unwrap();
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).unwrap();
    assert!(readme.contains(&source), "README.md shows another text than examples/greeter/src/main.rs");
    assert!(source.lines().count() < 30);
}
