//! A node for the commands of the CNI specification: a bridge of the kernel, two pods, and cnitool as their runtime.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use staffetta_apiserver::{ApiServer, Options};
use staffetta_driver::{Network, SubnetAddresses, Vif, VifClass};
use staffetta_network::os_vif::PodState;
use tempfile::TempDir;
use tokio::process::Command;

use crate::process::Process;
use crate::{PROGRAM, VIF};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/devstack/real/node");

/// The pods, and the last parts of their addresses.
const PODS: [(&str, u8); 2] = [("one", 11), ("two", 12)];

/// Runs a program, which must succeed, and returns what it printed.
pub(crate) async fn run(command: &mut Command) -> String {
    let output = command.output().await.unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command of iproute2: `ip` or `tc`.
pub(crate) async fn iproute(command: &str) -> String {
    let (program, arguments) = command.split_once(' ').unwrap();
    run(Command::new(program).args(arguments.split(' '))).await
}

/// A bridge and the network namespaces of two pods, which are removed when it is dropped.
pub(crate) struct CniNode {
    /// The name of the bridge, with which those of the namespaces begin.
    pub(crate) bridge: String,
    number: u8,
    folder: TempDir,
    cnitool: String,
    server: ApiServer,
}

impl CniNode {
    /// Creates the node with this number.
    pub(crate) async fn new(number: u8) -> Self {
        let server = ApiServer::start(Options::default()).await.unwrap();
        let cnitool = run(Command::new("bash").args([SCRIPT, "cnitool"])).await.trim().to_owned();
        let bridge = format!("stcnitool{number}");
        let node = Self { bridge, number, folder: tempfile::tempdir().unwrap(), cnitool, server };
        let client = Client::try_from(Config::new(node.server.url().parse().unwrap())).unwrap();
        let pods = Api::<Pod>::namespaced(client, "default");
        let bridge = &node.bridge;
        iproute(&format!("ip link add {bridge} type bridge")).await;
        iproute(&format!("ip addr add {}/24 dev {bridge}", node.address(1))).await;
        iproute(&format!("ip addr add {}/64 dev {bridge} nodad", node.v6_address(1))).await;
        iproute(&format!("ip link set {bridge} up")).await;
        for (name, host) in PODS {
            iproute(&format!("ip netns add {bridge}-{name}")).await;
            pods.create(&PostParams::default(), &node.pod(name, host)).await.unwrap();
        }
        run(Command::new(Self::plugin())
            .args(["install", "--bin"])
            .arg(node.path())
            .arg("--conf")
            .arg(node.path())
            .arg("--daemon")
            .arg(node.socket()))
        .await;
        std::fs::create_dir(node.path().join("chain")).unwrap();
        node
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn plugin() -> PathBuf {
        Path::new(PROGRAM).with_file_name("staffetta-cni")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path().join("cni.sock")
    }

    /// Returns the address that ends in `host`; the node has the one that ends in 1.
    pub(crate) fn address(&self, host: u8) -> String {
        format!("10.97.{}.{host}", self.number)
    }

    /// Returns the IPv6 address that ends in `host`.
    pub(crate) fn v6_address(&self, host: u8) -> String {
        format!("fd97:{}::{host:x}", self.number)
    }

    /// Starts the daemon with more `options` of its section, and waits until it is ready.
    pub(crate) async fn daemon(&self, options: &str) -> Process {
        let path = self.path().display();
        let configuration = format!(
            "[kubernetes]\n[cni_daemon]\nnode_name = \"n1\"\nlisten = \"{path}/cni.sock\"\nstate_folder = \"{path}/records\"\n\
             {options}[binding]\nbridges = [\"{}\"]\n",
            self.bridge
        );
        let kubeconfig = self.path().join("kubeconfig");
        std::fs::write(&kubeconfig, self.server.kubeconfig()).unwrap();
        let daemon =
            Process::start_cni_daemon(Path::new(PROGRAM), self.path(), &configuration, &kubeconfig).await;
        daemon.ready().await;
        daemon
    }

    /// Runs a command of the specification for a pod, with `arguments` for the capabilities of plugins.
    pub(crate) async fn cnitool(
        &self,
        command: &str,
        pod: &str,
        arguments: &Value,
    ) -> Result<String, String> {
        let chain = self.path().join("chain");
        let configuration = if command == "status" { self.path() } else { &chain };
        let plugins = format!("{}:/usr/lib/cni", self.path().display());
        let output = Command::new(&self.cnitool)
            .args([command, "staffetta", &format!("/run/netns/{}-{pod}", self.bridge)])
            .env("CNI_PATH", plugins)
            .env("NETCONFPATH", configuration)
            .env("CNI_ARGS", format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={pod}"))
            .env("CAP_ARGS", arguments.to_string())
            .output()
            .await
            .unwrap();
        let [printed, said] =
            [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        if output.status.success() { Ok(printed) } else { Err(said + &printed) }
    }

    /// Returns a command in the network namespace of a pod.
    pub(crate) fn command_in(&self, pod: &str, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &format!("{}-{pod}", self.bridge), program]);
        command
    }

    /// Returns the addresses of the interface of a pod.
    pub(crate) async fn addresses(&self, pod: &str) -> Vec<Value> {
        let links = iproute(&format!("ip -n {}-{pod} -j addr show", self.bridge)).await;
        let links: Vec<Value> = serde_json::from_str(&links).unwrap();
        let found = links.iter().filter(|link| link["ifname"] == "eth0");
        found.flat_map(|link| link["addr_info"].as_array().unwrap().clone()).collect()
    }

    /// The configuration with other plugins, which the runtime executes.
    pub(crate) fn chain(&self) -> PathBuf {
        self.path().join("chain/05-chain.conflist")
    }

    /// Writes the configuration with the plugin `after` ours. Debian's plugins do not know version 1.1.0, with STATUS and GC.
    pub(crate) fn write_chain(&self, after: Value) {
        let list = std::fs::read_to_string(self.path().join("05-staffetta.conflist")).unwrap();
        let mut list: Value = serde_json::from_str(&list).unwrap();
        list["plugins"].as_array_mut().unwrap().push(after);
        list.as_object_mut().unwrap().remove("cniVersions");
        std::fs::write(self.chain(), list.to_string()).unwrap();
    }

    /// Returns a pod whose VIF is active.
    fn pod(&self, name: &str, host: u8) -> Pod {
        let number = self.number;
        let subnet = |cidr: String, gateway: String, ip: String| SubnetAddresses {
            cidr: cidr.parse().unwrap(),
            gateway: Some(gateway.parse().unwrap()),
            dns: Vec::new(),
            routes: Vec::new(),
            ips: vec![ip.parse().unwrap()],
        };
        let v4 = subnet(format!("{}/24", self.address(0)), self.address(1), self.address(host));
        let v6 = subnet(format!("{}/64", self.v6_address(0)), self.v6_address(1), self.v6_address(host));
        let vif = Vif {
            id: format!("cc{number:02x}00{host:02x}-0000-4000-8000-000000000000").as_str().into(),
            address: format!("fa:16:3e:97:{number:02x}:{host:02x}").parse().unwrap(),
            active: true,
            plugin: "linux_bridge".to_owned(),
            class: VifClass::Bridge { vif_name: "eth0".to_owned(), bridge_name: self.bridge.clone() },
            network: Network::new("n".into()),
            subnets: vec![v4, v6],
            has_traffic_filtering: false,
            preserve_on_delete: false,
            port_profile: None,
        };
        let annotations = json!({ VIF: PodState::new(vif).write() });
        let pod = json!({
            "metadata": { "name": name, "annotations": annotations, "finalizers": ["staffetta.dev/vif"] },
            "spec": { "nodeName": "n1", "containers": [{ "name": "c", "image": "i" }] },
        });
        serde_json::from_value(pod).unwrap()
    }

    /// Returns the name of the interface on the node of the pod with the address that ends in `host`.
    pub(crate) fn host_interface(&self, host: u8) -> String {
        format!("tapcc{:02x}00{host:02x}-00", self.number)
    }
}

impl Drop for CniNode {
    fn drop(&mut self) {
        let ip = |arguments: String| {
            let _ = std::process::Command::new("ip").args(arguments.split(' ')).status();
        };
        for (name, _) in PODS {
            ip(format!("netns del {}-{name}", self.bridge));
        }
        ip(format!("link del {}", self.bridge));
    }
}

/// The chains of `portmap` for all pods, which stay in the table `nat` after its last DEL. They are removed when it is dropped, unless a
/// pod uses them.
pub(crate) struct HostPortChains;

impl Drop for HostPortChains {
    fn drop(&mut self) {
        let script = "for table in iptables ip6tables; do \
            rules=$($table-save -t nat); ! echo \"$rules\" | grep -q '^:CNI-DN-' || continue; \
            echo \"$rules\" | sed -nE '/^-A (PREROUTING|OUTPUT|POSTROUTING) .*CNI-HOSTPORT/s/^-A/-D/p' | xargs -r -L1 $table -t nat; \
            for action in F X; do for chain in DNAT SETMARK MASQ; do $table -t nat -$action CNI-HOSTPORT-$chain; done; done; done";
        let _ = std::process::Command::new("sh").args(["-c", script]).status();
    }
}
