//! The handler, the driver and the tunnel of an external author, against the embedded server.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../../../tests/support/page.rs"]
mod page;
#[path = "../../../tests/support/process.rs"]
mod process;

use std::path::Path;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::{Client, Config};
use page::Page;
use process::{Process, eventually};
use serde_json::{Value, json};
use staffetta_apiserver::{ApiServer, Options};
use staffetta_cni::message::CniRequest;
use staffetta_driver::{Network, Vif, VifClass};
use staffetta_network::os_vif::PodState;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

const PROGRAM: &str = env!("CARGO_BIN_EXE_outside");

#[tokio::test]
async fn an_outside_handler_and_an_outside_driver_work_beside_ours() {
    let server = ApiServer::start(Options::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let configuration = "[kubernetes]\nenabled_handlers = [\"vif\", \"greeter\"]\npod_vif_driver = \"acme\"\npod_project_driver = \"memory\"\n\
         pod_subnets_driver = \"memory\"\npod_security_groups_driver = \"memory\"\n";
    let mut process =
        Process::start(Path::new(PROGRAM), folder.path(), configuration, &server.kubeconfig()).await;
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
    let server = ApiServer::start(Options::default()).await.unwrap();
    let client = Client::try_from(Config::new(server.url().parse().unwrap())).unwrap();
    let pods = Api::<Pod>::namespaced(client, "default");
    let pod = json!({ "metadata": { "name": "web" },
        "spec": { "nodeName": "n1", "containers": [{ "name": "c", "image": "i" }] } });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, server.kubeconfig()).unwrap();
    let mut command = tokio::process::Command::new(PROGRAM);
    command.env("STAFFETTA_KUBERNETES__ENABLED_HANDLERS", "vif,greeter");
    command.env("STAFFETTA_KUBERNETES__POD_VIF_DRIVER", "acme");
    command.env("STAFFETTA_KUBERNETES__CLUSTER_ID", "east");
    for driver in ["POD_PROJECT", "POD_SUBNETS", "POD_SECURITY_GROUPS"] {
        command.env(format!("STAFFETTA_KUBERNETES__{driver}_DRIVER"), "memory");
    }
    let output = command.args(["run", "--dry-run", "--kubeconfig"]).arg(&kubeconfig).output().await.unwrap();
    let plan = String::from_utf8(output.stdout).unwrap();
    let expected = "Pod default/web\n\
         \x20 vif: would request a VIF: subnets 10.10.0.0/16, security groups default, project memory, node n1\n\
         \x20 vif: would write: + annotation openstack.org/kuryr-vif, + annotation staffetta.dev/cluster east, + finalizer staffetta.dev/vif\n\
         \x20 greeter: would write: + annotation example.com/greeting hello\n";
    assert!(plan.starts_with(expected), "{plan}{}", String::from_utf8_lossy(&output.stderr));
    let metadata = pods.get("web").await.unwrap().metadata;
    assert_eq!((metadata.annotations, metadata.finalizers), (None, None));
}

/// The commands of the quick start for authors of drivers that need no cluster.
#[tokio::test]
async fn the_commands_of_the_quick_start_list_the_outside_driver() {
    let page = Page::read("../../docs/start/driver.md");
    let folder = tempfile::tempdir().unwrap();
    page.write_files(folder.path());
    let mut printed = String::new();
    for (command, shown) in page.commands() {
        let call = command.strip_prefix("target/debug/outside ");
        let Some(arguments) = call.filter(|arguments| !arguments.starts_with("run ")) else { continue };
        let mut process = tokio::process::Command::new(PROGRAM);
        process.current_dir(folder.path());
        let output = process.args(arguments.split(' ')).output().await.unwrap();
        let answer = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && (shown.is_empty() || answer == shown), "{command}: {answer}");
        printed += &answer;
    }
    assert!(printed.lines().any(|line| line.contains("acme ") && line.contains(" yes ")), "{printed}");
}

/// Sends a request to the daemon of the CNI plugin, and returns the status code and the body.
async fn ask(socket: &Path, path: &str, request: &CniRequest) -> (u16, String) {
    let mut stream = UnixStream::connect(socket).await.unwrap();
    let body = serde_json::to_string(request).unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: daemon\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// A pod `NAME` on the node `n1`, with the active port `acme-NUMBER` of the outside switch.
fn acme_pod(name: &str, number: u8) -> Pod {
    let vif = Vif {
        id: format!("acme-{number}0000000").into(),
        address: format!("02:ac:00:00:00:0{number}").parse().unwrap(),
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
    let pod = json!({ "metadata": { "name": name, "annotations": { "openstack.org/kuryr-vif": annotation },
            "finalizers": ["staffetta.dev/vif"] },
        "spec": { "nodeName": "n1", "containers": [{ "name": "c", "image": "i" }] } });
    serde_json::from_value(pod).unwrap()
}

/// A node with the daemon of the outside program.
struct AcmeNode {
    folder: tempfile::TempDir,
}

impl AcmeNode {
    async fn new(server: &ApiServer) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("kubeconfig"), server.kubeconfig()).unwrap();
        std::fs::create_dir(folder.path().join("ports")).unwrap();
        Self { folder }
    }

    async fn daemon(&self) -> Process {
        let path = self.folder.path();
        let shown = path.display();
        let configuration = format!(
            "[kubernetes]\n[cni_daemon]\nnode_name = \"n1\"\nlisten = \"{shown}/cni.sock\"\nstate_folder = \"{shown}/records\"\n\
             conflist = \"{shown}/05-staffetta.conflist\"\nvif_annotation_timeout = 1\nvif_classes = [\"VIFAcme\"]\n"
        );
        let ports = path.join("ports");
        let environment = [("ACME_PORTS", &*ports)];
        let kubeconfig = path.join("kubeconfig");
        Process::start_cni_daemon_in(&environment, Path::new(PROGRAM), path, &configuration, &kubeconfig)
            .await
    }

    /// Runs ADD for a pod, whose sandbox is called like it.
    async fn add(&self, name: &str) -> (u16, String) {
        ask(&self.folder.path().join("cni.sock"), "/addNetwork", &request("ADD", name)).await
    }

    async fn delete(&self, name: &str) -> u16 {
        ask(&self.folder.path().join("cni.sock"), "/delNetwork", &request("DEL", name)).await.0
    }

    /// The ports that the switch connects.
    fn ports(&self) -> Vec<String> {
        let ports = std::fs::read_dir(self.folder.path().join("ports")).unwrap();
        let mut names: Vec<_> = ports.map(|port| port.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn request(command: &str, name: &str) -> CniRequest {
    CniRequest {
        cni_command: command.to_owned(),
        cni_containerid: name.to_owned(),
        cni_netns: format!("/run/netns/{name}"),
        cni_ifname: "eth0".to_owned(),
        cni_args: format!("K8S_POD_NAMESPACE=default;K8S_POD_NAME={name}"),
        ..CniRequest::default()
    }
}

#[tokio::test]
async fn the_daemon_on_a_node_binds_vifs_of_an_outside_class() {
    let server = ApiServer::start(Options::default()).await.unwrap();
    let client = Client::try_from(Config::new(server.url().parse().unwrap())).unwrap();
    let events = Api::<Event>::namespaced(client.clone(), "default");
    let pods = Api::<Pod>::namespaced(client, "default");
    pods.create(&PostParams::default(), &acme_pod("web", 1)).await.unwrap();
    let node = AcmeNode::new(&server).await;
    let mut daemon = node.daemon().await;
    daemon.ready().await;
    assert_eq!(node.add("web").await.0, 202);
    let bound = std::fs::read_to_string(node.folder.path().join("ports/acme-10000000")).unwrap();
    assert_eq!(bound, "/run/netns/web");
    assert_eq!(node.delete("web").await, 204);
    assert_eq!(node.ports(), [""; 0]);

    // A pod without a VIF is told why it waits, and the wait is counted.
    let bare = json!({ "metadata": { "name": "bare" },
        "spec": { "nodeName": "n1", "containers": [{ "name": "c", "image": "i" }] } });
    pods.create(&PostParams::default(), &serde_json::from_value(bare).unwrap()).await.unwrap();
    let (code, error) = node.add("bare").await;
    assert_eq!(code, 504);
    assert!(error.contains("the controller has not given it a VIF yet"), "{error}");
    eventually("the pod has an Event", async || {
        let events = events.list(&ListParams::default()).await.unwrap().items;
        events.iter().any(|event| {
            let regarding = event.regarding.as_ref().and_then(|regarding| regarding.name.as_deref());
            regarding == Some("bare") && event.reason.as_deref() == Some("WaitingForVif")
        })
    })
    .await;
    let metrics = daemon.get("/metrics").await.1;
    let counted = "staffetta_cni_request_duration_seconds_count{command=\"add\",error=\"try_again_later\"} 1";
    assert!(metrics.contains(counted), "{metrics}");
    assert!(daemon.terminate().await.success());
}

#[tokio::test]
async fn without_an_api_server_the_daemon_on_a_node_binds_the_pods_that_it_knows_and_unbinds_all() {
    let server = ApiServer::start(Options::default()).await.unwrap();
    let client = Client::try_from(Config::new(server.url().parse().unwrap())).unwrap();
    let pods = Api::<Pod>::namespaced(client, "default");
    for (name, number) in [("one", 1), ("two", 2), ("three", 3)] {
        pods.create(&PostParams::default(), &acme_pod(name, number)).await.unwrap();
    }
    let node = AcmeNode::new(&server).await;
    let conflist = node.folder.path().join("05-staffetta.conflist");
    let daemon = node.daemon().await;
    daemon.ready().await;
    eventually("the runtime is told of the plugin", async || conflist.exists()).await;
    assert_eq!(node.add("one").await.0, 202);
    drop(server);
    eventually("the watch has failed", async || {
        let state: Value = serde_json::from_str(&daemon.get("/debug/state").await.1).unwrap();
        state["watches"][0]["error"].is_string()
    })
    .await;
    // It goes on serving, and kubelets are not to restart it or take it for one that cannot.
    assert_eq!((daemon.get("/livez").await.0, daemon.get("/readyz").await.0), (200, 200));
    assert_eq!((node.add("two").await.0, node.delete("one").await), (202, 204));
    assert_eq!(node.ports(), ["acme-20000000"]);

    // A daemon that starts now knows nobody, and unbinds by its records.
    drop(daemon);
    std::fs::remove_file(&conflist).unwrap();
    let mut daemon = node.daemon().await;
    eventually("the socket is there", async || {
        UnixStream::connect(node.folder.path().join("cni.sock")).await.is_ok()
    })
    .await;
    let (code, error) = node.add("three").await;
    assert_eq!(code, 504);
    assert!(error.contains("is the API server reachable?"), "{error}");
    assert_eq!(node.delete("two").await, 204);
    assert_eq!(node.ports(), [""; 0]);
    assert!(!conflist.exists(), "nodes without a ready daemon are not ready");
    assert_eq!(daemon.get("/readyz").await.0, 503);
    assert!(daemon.terminate().await.success());
}

#[tokio::test]
async fn a_machine_of_an_outside_tunnel_becomes_a_node_and_runs_a_pod() {
    let server = ApiServer::start(Options::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let configuration = "[kubernetes]\nenabled_handlers = [\"vnode\"]\n\
                         [vnode]\ntunnels = [\"acme-press\"]\npoll_interval_ms = 200\nhealth_interval_ms = 200\n";
    let mut process =
        Process::start(Path::new(PROGRAM), folder.path(), configuration, &server.kubeconfig()).await;
    process.ready().await;

    let client = Client::try_from(Config::new(server.url().parse().unwrap())).unwrap();
    let nodes = Api::<Node>::all(client.clone());
    let hall = async || {
        let node = nodes.get_opt("vnode.press-1.dev").await.unwrap();
        node.and_then(|node| node.metadata.annotations?.remove("example.com/hall"))
    };
    eventually("the press is a node with its own data", async || hall().await.as_deref() == Some("north"))
        .await;
    let pods = Api::<Pod>::namespaced(client, "default");
    let pod = json!({
        "metadata": { "name": "page", "labels": { "virtual-kubelet.koupleless.io/component": "module" } },
        "spec": { "nodeName": "vnode.press-1.dev", "containers": [{ "name": "print", "image": "i" }],
            "tolerations": [{ "operator": "Exists" }] },
    });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let phase = async || pods.get_opt("page").await.unwrap().and_then(|pod| pod.status?.phase);
    eventually("the press prints the page", async || phase().await.as_deref() == Some("Running")).await;
    assert!(
        process.get("/metrics").await.1.contains("staffetta_tunnel_connected{tunnel=\"acme-press\"} 1\n")
    );
    pods.delete("page", &DeleteParams::default()).await.unwrap();
    eventually("the pod is gone", async || phase().await.is_none()).await;
    assert!(process.terminate().await.success());
}
