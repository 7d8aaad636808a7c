//! A handler and a driver of an external author, built outside of the workspace and run against the embedded server.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "support/process.rs"]
mod process;

use std::path::{Path, PathBuf};
use std::process::Command;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use kube::{Client, Config};
use process::{Process, eventually};
use serde_json::json;
use staffetta_apiserver::{ApiServer, Options};
use staffetta_cni::message::CniRequest;
use staffetta_driver::{Network, Vif, VifClass};
use staffetta_network::os_vif::PodState;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/outside");

/// Builds the outside controller, into the folder that this test was built into, where most of it lies ready.
fn build() -> PathBuf {
    let target = Path::new(env!("CARGO_BIN_EXE_staffetta")).ancestors().nth(2).unwrap();
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--locked", "--manifest-path"])
        .arg(Path::new(SOURCE).join("Cargo.toml"))
        .arg("--target-dir")
        .arg(target)
        .status()
        .unwrap();
    assert!(
        status.success(),
        "the outside crate does not build; when dependencies changed, copy Cargo.lock to examples/outside and run \
         `cargo metadata --manifest-path examples/outside/Cargo.toml`"
    );
    target.join("debug/outside")
}

#[tokio::test]
async fn an_outside_handler_and_an_outside_driver_work_beside_ours() {
    let program = tokio::task::spawn_blocking(build).await.unwrap();
    let server = ApiServer::start(Options::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let configuration = "[kubernetes]\nenabled_handlers = [\"vif\", \"greeter\"]\npod_vif_driver = \"acme\"\npod_project_driver = \"memory\"\n\
         pod_subnets_driver = \"memory\"\npod_security_groups_driver = \"memory\"\n";
    let mut process = Process::start(&program, folder.path(), configuration, &server.kubeconfig()).await;
    process.ready().await;

    let client = Client::try_from(Config::new(server.url().parse().unwrap())).unwrap();
    let pods = Api::<Pod>::namespaced(client, "default");
    let pod = json!({ "metadata": { "name": "web" },
        "spec": { "nodeName": "n1", "containers": [{ "name": "c", "image": "i" }] } });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    eventually("the pod is greeted and has a port of the outside driver", async || {
        let annotations = pods.get("web").await.unwrap().metadata.annotations.unwrap_or_default();
        let greeted = annotations.get("example.com/greeting").is_some_and(|greeting| greeting == "hello");
        greeted && annotations.get("openstack.org/kuryr-vif").is_some_and(|vif| vif.contains("acme-"))
    })
    .await;
    assert!(process.terminate().await.success());
    process.says("all queues are drained").await;
}

#[tokio::test]
async fn an_outside_handler_and_an_outside_driver_take_part_in_a_dry_run() {
    let program = tokio::task::spawn_blocking(build).await.unwrap();
    let server = ApiServer::start(Options::default()).await.unwrap();
    let client = Client::try_from(Config::new(server.url().parse().unwrap())).unwrap();
    let pods = Api::<Pod>::namespaced(client, "default");
    let pod = json!({ "metadata": { "name": "web" },
        "spec": { "nodeName": "n1", "containers": [{ "name": "c", "image": "i" }] } });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, server.kubeconfig()).unwrap();
    let mut command = tokio::process::Command::new(program);
    command.env("STAFFETTA_KUBERNETES__ENABLED_HANDLERS", "vif,greeter");
    command.env("STAFFETTA_KUBERNETES__POD_VIF_DRIVER", "acme");
    for driver in ["POD_PROJECT", "POD_SUBNETS", "POD_SECURITY_GROUPS"] {
        command.env(format!("STAFFETTA_KUBERNETES__{driver}_DRIVER"), "memory");
    }
    let output = command.args(["run", "--dry-run", "--kubeconfig"]).arg(&kubeconfig).output().await.unwrap();
    let plan = String::from_utf8(output.stdout).unwrap();
    let expected = "Pod default/web\n\
         \x20 vif: would request a VIF: subnets 10.10.0.0/16, security groups default, project memory, node n1\n\
         \x20 vif: would write: + annotation openstack.org/kuryr-vif, + finalizer staffetta.dev/vif\n\
         \x20 greeter: would write: + annotation example.com/greeting hello\n";
    assert!(plan.starts_with(expected), "{plan}{}", String::from_utf8_lossy(&output.stderr));
    let metadata = pods.get("web").await.unwrap().metadata;
    assert_eq!((metadata.annotations, metadata.finalizers), (None, None));
}

/// Sends a request to the daemon of the CNI plugin, and returns the status code.
async fn ask(socket: &Path, path: &str, request: &CniRequest) -> u16 {
    let mut stream = UnixStream::connect(socket).await.unwrap();
    let body = serde_json::to_string(request).unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: daemon\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn the_daemon_on_a_node_binds_vifs_of_an_outside_class() {
    let program = tokio::task::spawn_blocking(build).await.unwrap();
    let server = ApiServer::start(Options::default()).await.unwrap();
    let client = Client::try_from(Config::new(server.url().parse().unwrap())).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, server.kubeconfig()).unwrap();
    let vif = Vif {
        id: "acme-00000000".into(),
        address: "02:ac:00:00:00:01".parse().unwrap(),
        active: true,
        plugin: "noop".into(),
        class: VifClass::Other {
            name: "VIFAcme".into(),
            version: "1.0".into(),
            fields: serde_json::Map::new(),
        },
        network: Network::new("n".into()),
        subnets: Vec::new(),
        has_traffic_filtering: false,
        preserve_on_delete: false,
        port_profile: None,
    };
    let annotation = PodState::new(vif).write();
    let pod = json!({ "metadata": { "name": "web", "annotations": { "openstack.org/kuryr-vif": annotation },
            "finalizers": ["staffetta.dev/vif"] },
        "spec": { "nodeName": "n1", "containers": [{ "name": "c", "image": "i" }] } });
    let pods = Api::<Pod>::namespaced(client, "default");
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();

    let path = folder.path().display();
    let configuration = format!(
        "[kubernetes]\n[cni_daemon]\nnode_name = \"n1\"\nlisten = \"{path}/cni.sock\"\nstate_folder = \"{path}/records\"\n"
    );
    let ports = folder.path().join("ports");
    std::fs::create_dir(&ports).unwrap();
    let mut daemon = Process::start_cni_daemon_in(
        &[("ACME_PORTS", &ports)],
        &program,
        folder.path(),
        &configuration,
        &kubeconfig,
    )
    .await;
    daemon.ready().await;
    let request = |command: &str| CniRequest {
        cni_command: command.to_owned(),
        cni_containerid: "c1".to_owned(),
        cni_netns: "/run/netns/c1".to_owned(),
        cni_ifname: "eth0".to_owned(),
        cni_args: "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web".to_owned(),
        ..CniRequest::default()
    };
    let socket = folder.path().join("cni.sock");
    assert_eq!(ask(&socket, "/addNetwork", &request("ADD")).await, 202);
    assert_eq!(std::fs::read_to_string(ports.join("acme-00000000")).unwrap(), "/run/netns/c1");
    assert_eq!(ask(&socket, "/delNetwork", &request("DEL")).await, 204);
    assert_eq!(std::fs::read_dir(&ports).unwrap().count(), 0);
    assert!(daemon.terminate().await.success());
}

#[tokio::test]
async fn an_outside_tunnel_reports_a_machine_and_runs_a_container_on_it() {
    let program = tokio::task::spawn_blocking(build).await.unwrap().with_file_name("acme-tunnel");
    let output = tokio::process::Command::new(program).output().await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let expected =
        "press-1 appears: Activated\npress-1 starts print: Success\npress-1 runs print: ACTIVATED\n";
    assert_eq!(text, expected, "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success());
}

#[test]
fn the_readme_shows_the_handler_as_it_is_and_it_is_short() {
    let source = std::fs::read_to_string(Path::new(SOURCE).join("src/main.rs")).unwrap();
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    assert!(readme.contains(&source), "README.md shows another text than examples/outside/src/main.rs");
    assert!(source.lines().count() < 30);
}
