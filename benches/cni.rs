//! `cargo xtask bench cni`: the CNI plugin beside the reference plugins, and the memory of its daemon. Needs root.
//!
//! Both plugins add a veth pair and a port of a Linux bridge to network namespaces that exist, in turns: ours with the VIF of an annotation
//! that is active already, `bridge` with an address of `host-local`. The time runs from the start of the plugin's process to its end. The
//! daemon runs on a node with 250 pods of a real kube-apiserver with 50,000.

mod cluster;
mod program;
mod report;
mod wait;

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use serde_json::{Value, json};
use staffetta_apiserver::testing::RealServer;
use staffetta_driver::{Network, SubnetAddresses, Vif, VifClass};
use staffetta_network::os_vif::PodState;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::runtime::Builder;

use program::Program;
use report::{Row, median, milliseconds, number, publish};

/// The folder of the reference plugins (the package containernetworking-plugins of Debian).
const REFERENCE: &str = "/usr/lib/cni";
/// The node of the daemon, and its pods.
const NODE: &str = "bench";
const PODS: usize = 250;
/// The number of ADDs at once.
const AT_ONCE: usize = 50;
/// The bridges of both plugins.
const BRIDGE: &str = "stbench-ours";
const OTHER_BRIDGE: &str = "stbench-ref";

fn main() {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    publish("cni", &runtime.expect("threads can be started").block_on(measure()));
}

async fn measure() -> Vec<Row> {
    let others = number("STAFFETTA_BENCH_PODS", 50_000) - PODS;
    let plugin = plugin().await;
    let server = RealServer::start(&[]).await;
    let client = cluster::client(server.kubeconfig()).await;
    let mut pods = Vec::new();
    for number in 0..PODS {
        let pod = pod(number);
        pods.push(
            cluster::pods(&client).create(&PostParams::default(), &pod).await.expect("a pod can be created"),
        );
    }
    let names: Vec<_> = (0..others).map(|number| format!("other-{number}")).collect();
    cluster::create(&client, &names).await;

    let place = Place::new(plugin).await;
    let mut daemon = Program::start_cni_daemon(server.kubeconfig(), &place.sections());
    daemon.logs("all objects are listed").await;
    let mut times = (Vec::new(), Vec::new());
    for pod in &pods {
        place.namespace(pod).await;
        // In turns, so that both see the same machine.
        times.0.push(place.add(&place.ours(pod)).await);
        times.1.push(place.add(&place.reference(pod)).await);
        place.delete(&place.ours(pod)).await;
        place.delete(&place.reference(pod)).await;
    }
    let mut starts = Vec::new();
    for _ in 0..PODS {
        starts.push(milliseconds(place.run("VERSION", &place.ours(&pods[0])).await.0));
    }
    let began = Instant::now();
    let calls: Vec<_> = pods[..AT_ONCE].iter().map(|pod| place.ours(pod)).collect();
    join_all(calls.iter().map(|call| place.add(call))).await;
    let together = milliseconds(began.elapsed());
    let ports = Place::ports(BRIDGE);
    let usage = daemon.usage();
    let ((p50, p99), (other_p50, other_p99)) = (quantiles(times.0), quantiles(times.1));
    let start = median(starts);
    vec![
        Row::new("ADD with an active VIF, p50", "ms", p50)
            .against(other_p50)
            .goal("at most that of bridge and host-local", p50 <= other_p50),
        Row::new("ADD with an active VIF, p99", "ms", p99)
            .against(other_p99)
            .goal("at most 1.5 times theirs", p99 <= 1.5 * other_p99),
        Row::new("start of the plugin (VERSION), p50", "ms", start).goal("less than 5", start < 5.0),
        Row::new(format!("{AT_ONCE} ADDs at once"), "ms", together).goal("none is lost", ports == AT_ONCE),
        Row::new(format!("resident, {PODS} of {} pods", others + PODS), "MiB", usage.resident)
            .goal("less than 30", usage.resident < 30.0),
        Row::new("peak", "MiB", usage.peak),
    ]
}

/// The median and the 99th percentile, in milliseconds.
fn quantiles(times: Vec<Duration>) -> (f64, f64) {
    let mut times: Vec<_> = times.into_iter().map(milliseconds).collect();
    times.sort_by(f64::total_cmp);
    (times[times.len() / 2], times[times.len() * 99 / 100])
}

/// Builds the plugin as the image contains it.
async fn plugin() -> PathBuf {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/etc/deploy/image");
    let output = Command::new(script).arg("plugin").stderr(Stdio::inherit()).output().await;
    let output = output.expect("the script can be started");
    assert!(output.status.success(), "the plugin cannot be built");
    String::from_utf8_lossy(&output.stdout).lines().last().expect("it prints the path").into()
}

/// A pod of the node whose VIF is active.
fn pod(number: usize) -> Pod {
    let host = number + 10;
    let subnet = SubnetAddresses {
        cidr: "10.99.0.0/16".parse().expect("it is a subnet"),
        gateway: Some([10, 99, 0, 1].into()),
        dns: Vec::new(),
        routes: Vec::new(),
        ips: vec![format!("10.99.{}.{}", host / 256, host % 256).parse().expect("it is an address")],
    };
    let vif = Vif {
        id: format!("{number:08x}-0000-4000-8000-000000000000").as_str().into(),
        address: format!("fa:16:3e:00:{:02x}:{:02x}", host / 256, host % 256)
            .parse()
            .expect("it is a MAC address"),
        active: true,
        plugin: "linux_bridge".to_owned(),
        class: VifClass::Bridge { vif_name: "eth0".to_owned(), bridge_name: BRIDGE.to_owned() },
        network: Network::new("n".into()),
        subnets: vec![subnet],
        has_traffic_filtering: false,
        preserve_on_delete: false,
        port_profile: None,
    };
    let mut pod = cluster::pod(&format!("pod-{number}"));
    pod.spec.as_mut().expect("it has one").node_name = Some(NODE.to_owned());
    let annotation = PodState::new(vif).write();
    pod.metadata.annotations = Some([(cluster::VIF.to_owned(), annotation)].into());
    pod.metadata.finalizers = Some(vec![cluster::FINALIZER.to_owned()]);
    pod
}

/// A call of a plugin for a pod.
struct Call {
    program: PathBuf,
    configuration: Value,
    /// Both plugins add an interface to the same namespace.
    interface: &'static str,
    name: String,
    uid: String,
}

/// The bridges, the namespaces and the files of a run.
struct Place {
    folder: TempDir,
    plugin: PathBuf,
}

impl Place {
    async fn new(plugin: PathBuf) -> Self {
        let place = Self { folder: tempfile::tempdir().expect("a folder can be made"), plugin };
        ip(&format!("link add {BRIDGE} type bridge")).await;
        ip(&format!("link set {BRIDGE} up")).await;
        place
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn sections(&self) -> String {
        let path = self.path().display();
        format!(
            "[cni_daemon]\nnode_name = {NODE:?}\nlisten = \"{path}/cni.sock\"\nstate_folder = \"{path}/records\"\n\
             [binding]\nbridges = [{BRIDGE:?}]\n"
        )
    }

    async fn namespace(&self, pod: &Pod) {
        ip(&format!("netns add {}", netns(&name(pod)))).await;
    }

    fn ours(&self, pod: &Pod) -> Call {
        let configuration = json!({ "cniVersion": "1.0.0", "name": "staffetta", "type": "staffetta-cni",
            "daemon": self.path().join("cni.sock") });
        Call {
            program: self.plugin.clone(),
            configuration,
            interface: "eth0",
            name: name(pod),
            uid: pod.metadata.uid.clone().expect("the server sets it"),
        }
    }

    fn reference(&self, pod: &Pod) -> Call {
        let ipam = json!({ "type": "host-local", "subnet": "10.98.0.0/16", "dataDir": self.path().join("host-local") });
        let configuration = json!({ "cniVersion": "1.0.0", "name": "reference", "type": "bridge",
            "bridge": OTHER_BRIDGE, "ipam": ipam });
        Call {
            program: Path::new(REFERENCE).join("bridge"),
            configuration,
            interface: "eth1",
            ..self.ours(pod)
        }
    }

    /// Runs ADD, which must succeed, and returns its duration.
    async fn add(&self, call: &Call) -> Duration {
        let (time, output) = self.run("ADD", call).await;
        assert!(output.status.success(), "ADD: {}", String::from_utf8_lossy(&output.stdout));
        time
    }

    async fn delete(&self, call: &Call) {
        let (_, output) = self.run("DEL", call).await;
        assert!(output.status.success(), "DEL: {}", String::from_utf8_lossy(&output.stdout));
    }

    /// Runs a plugin, and returns its duration and its output.
    async fn run(&self, command: &str, call: &Call) -> (Duration, Output) {
        let input = call.configuration.to_string();
        let arguments = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={};K8S_POD_UID={}",
            call.name, call.uid
        );
        let began = Instant::now();
        let mut child = Command::new(&call.program)
            .env_clear()
            .env("CNI_COMMAND", command)
            .env("CNI_CONTAINERID", &call.name)
            .env("CNI_NETNS", format!("/run/netns/{}", netns(&call.name)))
            .env("CNI_IFNAME", call.interface)
            .env("CNI_ARGS", arguments)
            .env("CNI_PATH", REFERENCE)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the plugin can be started");
        let mut stdin = child.stdin.take().expect("it is piped");
        stdin.write_all(input.as_bytes()).await.expect("the plugin reads its configuration");
        drop(stdin);
        let output = child.wait_with_output().await.expect("the plugin ends");
        (began.elapsed(), output)
    }

    /// The number of ports of a bridge.
    fn ports(bridge: &str) -> usize {
        let folder = format!("/sys/class/net/{bridge}/brif");
        std::fs::read_dir(folder).expect("the bridge exists").count()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let ip = |command: String| {
            let _ = std::process::Command::new("ip").args(command.split(' ')).status();
        };
        for number in 0..PODS {
            ip(format!("netns delete {}", netns(&format!("pod-{number}"))));
        }
        ip(format!("link delete {BRIDGE}"));
        ip(format!("link delete {OTHER_BRIDGE}"));
    }
}

fn name(pod: &Pod) -> String {
    pod.metadata.name.clone().expect("it has one")
}

/// The network namespace of a pod.
fn netns(name: &str) -> String {
    format!("stbench-{name}")
}

/// Runs a command of `ip`, which must succeed.
async fn ip(command: &str) {
    let status = Command::new("ip").args(command.split(' ')).status().await.expect("iproute2 is installed");
    assert!(status.success(), "ip {command}");
}
