//! The commands of the CNI specification, from a runtime through the plugin and the daemon to the kernel, with a plugin after ours.

use std::path::Path;
use std::process::Stdio;

use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use staffetta_apiserver::{ApiServer, Options};
use staffetta_driver::{Network, SubnetAddresses, Vif, VifClass};
use staffetta_network::os_vif::PodState;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::process::Process;
use crate::{PROGRAM, VIF};

const BRIDGE: &str = "stcnitool";
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/devstack/real/node");

/// Runs a program, which must succeed, and returns what it printed.
async fn run(command: &mut Command) -> String {
    let output = command.output().await.unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

async fn ip(arguments: &str) -> String {
    run(Command::new("ip").args(arguments.split(' '))).await
}

/// A bridge and the network namespaces of two pods, which are removed when it is dropped.
struct Kernel;

impl Kernel {
    async fn new() -> Self {
        ip(&format!("link add {BRIDGE} type bridge")).await;
        ip(&format!("link set {BRIDGE} up")).await;
        for name in ["one", "two"] {
            ip(&format!("netns add {BRIDGE}-{name}")).await;
        }
        Self
    }

    /// The addresses of the interface of a pod.
    async fn addresses(name: &str) -> Vec<Value> {
        let links = ip(&format!("-n {BRIDGE}-{name} -j addr show")).await;
        let links: Vec<Value> = serde_json::from_str(&links).unwrap();
        let found = links.iter().filter(|link| link["ifname"] == "eth0");
        found.flat_map(|link| link["addr_info"].as_array().unwrap().clone()).collect()
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        for command in [
            format!("netns del {BRIDGE}-one"),
            format!("netns del {BRIDGE}-two"),
            format!("link del {BRIDGE}"),
        ] {
            let _ = std::process::Command::new("ip").args(command.split(' ')).status();
        }
    }
}

/// A pod whose VIF is active.
fn pod(name: &str, number: u8) -> Pod {
    let subnet = SubnetAddresses {
        cidr: "10.97.0.0/24".parse().unwrap(),
        gateway: None,
        dns: Vec::new(),
        routes: Vec::new(),
        ips: vec![[10, 97, 0, number].into()],
    };
    let vif = Vif {
        id: format!("cc0000{number:02x}-0000-4000-8000-000000000000").as_str().into(),
        address: format!("fa:16:3e:97:00:{number:02x}").parse().unwrap(),
        active: true,
        plugin: "linux_bridge".to_owned(),
        class: VifClass::Bridge { vif_name: "eth0".to_owned(), bridge_name: BRIDGE.to_owned() },
        network: Network::new("n".into()),
        subnets: vec![subnet],
        has_traffic_filtering: false,
        preserve_on_delete: false,
        port_profile: None,
    };
    let pod = json!({
        "metadata": { "name": name, "annotations": { VIF: PodState::new(vif).write() }, "finalizers": ["staffetta.dev/vif"] },
        "spec": { "nodeName": "n1", "containers": [{ "name": "c", "image": "i" }] },
    });
    serde_json::from_value(pod).unwrap()
}

/// A runtime that executes the CNI configuration in `folder`.
struct Runtime<'a> {
    cnitool: String,
    folder: &'a Path,
}

impl Runtime<'_> {
    /// Runs a command for a pod.
    async fn run(&self, command: &str, pod: &str) -> Result<String, String> {
        let chain = self.folder.join("chain");
        let configuration = if command == "status" { self.folder } else { &chain };
        let plugins = format!("{}:/usr/lib/cni", self.folder.display());
        let output = Command::new(&self.cnitool)
            .args([command, "staffetta", &format!("/run/netns/{BRIDGE}-{pod}")])
            .env("CNI_PATH", plugins)
            .env("NETCONFPATH", configuration)
            .env("CNI_ARGS", format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={pod}"))
            .output()
            .await
            .unwrap();
        let [printed, said] =
            [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        if output.status.success() { Ok(printed) } else { Err(said + &printed) }
    }
}

/// Runs GC, with no attachment that is valid. cnitool sends no list of them, which the plugin refuses: it would unbind every pod.
async fn collect(plugin: &Path, socket: &Path) {
    let configuration = json!({ "cniVersion": "1.1.0", "name": "staffetta", "type": "staffetta-cni", "daemon": socket,
        "cni.dev/valid-attachments": [] });
    let mut child = Command::new(plugin)
        .env("CNI_COMMAND", "GC")
        .env("CNI_PATH", "/usr/lib/cni")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(configuration.to_string().as_bytes()).await.unwrap();
    assert!(child.wait().await.unwrap().success());
}

#[tokio::test]
#[ignore = "needs network namespaces: devstack/real/test"]
async fn a_runtime_adds_checks_collects_and_deletes_through_the_plugin_and_the_daemon() {
    let server = ApiServer::start(Options::default()).await.unwrap();
    let client = Client::try_from(Config::new(server.url().parse().unwrap())).unwrap();
    let pods = Api::<Pod>::namespaced(client, "default");
    for (name, number) in [("one", 11), ("two", 12)] {
        pods.create(&PostParams::default(), &pod(name, number)).await.unwrap();
    }
    let _kernel = Kernel::new().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display();
    let plugin = Path::new(PROGRAM).with_file_name("staffetta-cni");
    let socket = folder.path().join("cni.sock");
    run(Command::new(&plugin)
        .args(["install", "--bin"])
        .arg(folder.path())
        .arg("--conf")
        .arg(folder.path())
        .arg("--daemon")
        .arg(&socket))
    .await;
    // `tuning` works with the result of the plugin before it. Debian's does not know version 1.1.0, with STATUS and GC.
    let list = std::fs::read_to_string(folder.path().join("05-staffetta.conflist")).unwrap();
    let mut list: Value = serde_json::from_str(&list).unwrap();
    let tuning = json!({ "type": "tuning", "sysctl": { "net.ipv4.conf.eth0.arp_announce": "2" } });
    list["plugins"].as_array_mut().unwrap().push(tuning);
    list.as_object_mut().unwrap().remove("cniVersions");
    let chain = folder.path().join("chain");
    std::fs::create_dir(&chain).unwrap();
    std::fs::write(chain.join("05-chain.conflist"), list.to_string()).unwrap();
    let cnitool = run(Command::new("bash").args([SCRIPT, "cnitool"])).await;
    let runtime = Runtime { cnitool: cnitool.trim().to_owned(), folder: folder.path() };

    let refused = runtime.run("add", "one").await.unwrap_err();
    assert!(refused.contains("the daemon"), "{refused}");
    let configuration = format!(
        "[kubernetes]\n[cni_daemon]\nnode_name = \"n1\"\nlisten = \"{path}/cni.sock\"\nstate_folder = \"{path}/records\"\n"
    );
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, server.kubeconfig()).unwrap();
    let mut daemon =
        Process::start_cni_daemon(Path::new(PROGRAM), folder.path(), &configuration, &kubeconfig).await;
    daemon.ready().await;
    runtime.run("status", "one").await.unwrap();

    for (name, address) in [("one", "10.97.0.11"), ("two", "10.97.0.12")] {
        let result: Value = serde_json::from_str(&runtime.run("add", name).await.unwrap()).unwrap();
        assert_eq!(result["ips"][0]["address"], format!("{address}/24"), "{result}");
        assert_eq!(Kernel::addresses(name).await[0]["local"], address);
        runtime.run("check", name).await.unwrap();
    }
    let setting = run(Command::new("ip").args([
        "netns",
        "exec",
        &format!("{BRIDGE}-one"),
        "cat",
        "/proc/sys/net/ipv4/conf/eth0/arp_announce",
    ]))
    .await;
    assert_eq!(setting.trim(), "2");
    ip(&format!("-n {BRIDGE}-one addr del 10.97.0.11/24 dev eth0")).await;
    let wrong = runtime.run("check", "one").await.unwrap_err();
    assert!(wrong.contains("10.97.0.11"), "{wrong}");

    runtime.run("del", "one").await.unwrap();
    runtime.run("del", "one").await.unwrap();
    assert!(Kernel::addresses("one").await.is_empty() && !Kernel::addresses("two").await.is_empty());
    collect(&plugin, &socket).await;
    assert!(Kernel::addresses("two").await.is_empty());
    runtime.run("del", "two").await.unwrap();
    assert_eq!(std::fs::read_dir(folder.path().join("records")).unwrap().count(), 0);
    assert!(daemon.terminate().await.success());
}
