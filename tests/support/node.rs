//! A node with a real kubelet, container runtime and Open vSwitch, and the daemon of the CNI plugin in a process of its own.

use std::path::{Path, PathBuf};

use kube::config::Kubeconfig;
use serde_json::{Value, json};
use staffetta_apiserver::testing::RealServer;
use tokio::process::Command;

use crate::kubectl::Kubectl;
use crate::process::{Process, eventually};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/devstack/real/node");

/// The name of the node.
pub(crate) const NODE: &str = "localhost";

/// The port by which the node reaches its pods.
pub(crate) struct NodePort<'a> {
    pub(crate) id: &'a str,
    pub(crate) mac: &'a str,
    /// Its address with the prefix length of the subnet.
    pub(crate) address: &'a str,
}

/// A node that is started under `devstack/real/node`. It ends with its containers when it is dropped.
pub(crate) struct RealNode {
    /// The state of the script, and its folder of the node.
    state: PathBuf,
    pub(crate) folder: PathBuf,
    kubeconfig: PathBuf,
    configuration: String,
    daemon: Option<Process>,
    pub(crate) kubectl: Kubectl,
}

impl RealNode {
    /// Starts the node and the daemon, and waits until the kubelet is ready for pods.
    pub(crate) async fn start(server: &RealServer, port: &NodePort<'_>) -> Self {
        let kubeconfig = server.kubeconfig().to_owned();
        let state = kubeconfig.ancestors().nth(2).unwrap().to_owned();
        let printed = script(&state, &["up", kubeconfig.to_str().unwrap()]).await;
        let folder = PathBuf::from(printed.lines().last().unwrap());
        let path = folder.display();
        let configuration = format!(
            "[kubernetes]\n[cni_daemon]\nnode_name = \"{NODE}\"\nlisten = \"{path}/cni.sock\"\nstate_folder = \"{path}/records\"\n\
             conflist = \"{path}/net.d/05-staffetta.conflist\"\nchained_plugins = [\"portmap\", \"bandwidth\"]\n[binding]\novsdb = \"{path}/ovs/db.sock\"\n\
             [node_port]\nport_id = \"{}\"\nmac = \"{}\"\naddresses = [\"{}\"]\n",
            port.id, port.mac, port.address
        );
        let kubectl = Kubectl::find(&kubeconfig, "default");
        let kubeconfig = account(&kubeconfig, &folder).await;
        let mut node = Self { state, folder, kubeconfig, configuration, daemon: None, kubectl };
        node.install_plugin().await;
        node.start_daemon().await;
        node.kubectl.run(&["wait", "--for=condition=Ready", "--timeout=60s", "node", NODE]).await;
        node
    }

    /// Starts the daemon. One that runs is killed before.
    pub(crate) async fn start_daemon(&mut self) {
        self.daemon = None;
        let program = Path::new(env!("CARGO_BIN_EXE_staffetta"));
        let daemon =
            Process::start_cni_daemon(program, &self.folder, &self.configuration, &self.kubeconfig).await;
        daemon.ready().await;
        self.daemon = Some(daemon);
    }

    /// Starts the daemon anew, without the records of the pods that it has bound.
    #[allow(dead_code, reason = "the tests on OpenStack lose none")]
    pub(crate) async fn lose_records(&mut self) {
        let mut daemon = self.daemon.take().unwrap();
        daemon.kill("KILL").await;
        daemon.ends().await;
        for record in self.folder.join("records").read_dir().unwrap() {
            std::fs::remove_file(record.unwrap().path()).unwrap();
        }
        self.start_daemon().await;
    }

    /// Copies the plugin, which is built beside the program, as its user does.
    async fn install_plugin(&self) {
        let plugin = Path::new(env!("CARGO_BIN_EXE_staffetta")).with_file_name("staffetta-cni");
        let bin = self.folder.join("bin");
        let installed = Command::new(&plugin).args(["install", "--bin"]).arg(bin).status().await;
        assert!(installed.unwrap_or_else(|error| panic!("{}: {error}", plugin.display())).success());
    }

    /// Runs a Deployment with so many pods, each of which serves HTTP and is probed by the kubelet, and waits until all are ready.
    pub(crate) async fn deploy(&self, replicas: usize) {
        self.roll_out(replicas, "", "").await;
    }

    /// Replaces the pods by one with this port of the node, and with a limit for what it receives.
    #[allow(dead_code, reason = "the tests on OpenStack need none")]
    pub(crate) async fn deploy_with_host_port(&self, port: u16) {
        let annotations = "annotations: { kubernetes.io/ingress-bandwidth: 60M }";
        self.roll_out(1, annotations, &format!("ports: [{{ containerPort: 8080, hostPort: {port} }}]")).await;
    }

    async fn roll_out(&self, replicas: usize, metadata: &str, container: &str) {
        let deployment = DEPLOYMENT
            .replace("REPLICAS", &replicas.to_string())
            .replace("# metadata", metadata)
            .replace("# container", container);
        self.kubectl.apply(&deployment).await;
        self.kubectl.run(&["rollout", "status", "deployment/web", "--timeout=120s"]).await;
    }

    /// Returns the names and addresses of the pods.
    pub(crate) async fn pods(&self) -> Vec<(String, String)> {
        let pods = self.kubectl.run(&["get", "pods", "-o", "json"]).await;
        let pods: Value = serde_json::from_str(&pods).unwrap();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let pods = pods["items"].as_array().unwrap().iter();
        pods.map(|pod| (text(&pod["metadata"]["name"]), text(&pod["status"]["podIP"]))).collect()
    }

    /// Fetches a page from each pod in each other one, and lets them ping each other.
    pub(crate) async fn assert_all_reach_all(&self) {
        let pods = self.pods().await;
        for (from, _) in &pods {
            for (_, to) in pods.iter().filter(|(name, _)| name != from) {
                let fetch = format!(
                    "busybox timeout 10 busybox wget -qO- http://{to}:8080/ && busybox ping -c 1 -W 10 {to}"
                );
                let printed = self.kubectl.run(&["exec", from, "--", "sh", "-c", &fetch]).await;
                assert!(
                    printed.starts_with("hello\n") && printed.contains("1 packets received"),
                    "{printed}"
                );
            }
        }
    }

    /// Deletes the pods, and waits until nothing of them is left on the node.
    pub(crate) async fn scale_down(&self) {
        self.kubectl.run(&["delete", "deployment", "web"]).await;
        eventually("the pods are gone", async || self.pods().await.is_empty()).await;
        eventually("no pod is recorded", async || {
            self.folder.join("records").read_dir().unwrap().next().is_none()
        })
        .await;
        let database = format!("--db=unix:{}/ovs/db.sock", self.folder.display());
        let ports =
            Command::new("ovs-vsctl").args([&database, "list-ports", "br-int"]).output().await.unwrap();
        let ports = String::from_utf8(ports.stdout).unwrap();
        assert_eq!(ports.lines().count(), 1, "only the node's own port is left: {ports}");
    }
}

impl Drop for RealNode {
    fn drop(&mut self) {
        // A test that has failed already is not to fail for this too.
        let _ = std::process::Command::new("bash")
            .args([SCRIPT, "down", "--wipe"])
            .env("STAFFETTA_REAL_STATE", &self.state)
            .status();
    }
}

/// Creates the daemon's service account with the rights of its manifest, and returns a kubeconfig with its token.
async fn account(admin: &Path, folder: &Path) -> PathBuf {
    let kubectl = Kubectl::find(admin, "");
    let manifests = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/etc/deploy/manifests/cni.yaml"));
    let others = manifests.split("\n---\n").filter(|object| !object.contains("\nkind: DaemonSet\n"));
    kubectl.apply(&others.collect::<Vec<_>>().join("\n---\n")).await;
    let arguments = ["create", "token", "staffetta-cni", "--namespace", "staffetta-cni"];
    let token = kubectl.run(&arguments).await;
    let mut own = json!(Kubeconfig::read_from(admin).unwrap());
    own["users"][0]["user"] = json!({ "token": token.trim() });
    let path = folder.join("daemon.kubeconfig");
    std::fs::write(&path, own.to_string()).unwrap();
    path
}

/// Runs a command of the script, and returns what it printed.
async fn script(state: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("bash");
    command.arg(SCRIPT).args(arguments).env("STAFFETTA_REAL_STATE", state);
    let output = command.output().await.unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

const DEPLOYMENT: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: { name: web }
spec:
  replicas: REPLICAS
  selector: { matchLabels: { app: web } }
  template:
    metadata:
      labels: { app: web }
      # metadata
    spec:
      automountServiceAccountToken: false
      dnsPolicy: Default
      terminationGracePeriodSeconds: 1
      containers:
        - name: web
          image: docker.io/local/busybox:1
          imagePullPolicy: Never
          command: [sh, -c, "busybox mkdir -p /www/debug; echo hello >/www/index.html; echo info >/www/debug/log-level; exec busybox httpd -f -p 8080 -h /www"]
          readinessProbe: { httpGet: { path: /, port: 8080 }, periodSeconds: 1 }
          # container
"#;
