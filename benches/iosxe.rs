//! `cargo bench --bench iosxe`: what many devices cost one controller, and what the controller costs a pod.
//!
//! A real API server, a site of simulated IOS-XE devices with TLS, and the controller as it ships, each in processes of their
//! own: the devices and the controller are this program started again. The CPU time and the memory of the controller's process
//! come from /proc, while all pods run and the devices are polled. A pod's path is from just before it is created until the
//! watch of the benchmark shows it Running; the device's own time is taken off.

#![allow(clippy::cast_precision_loss, reason = "the figures are far below 2^52")]
#![allow(clippy::print_stdout, reason = "a child tells its parent where it is")]

mod cluster;
mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use staffetta_apiserver::testing::RealServer;
use staffetta_iosxe_device::{Counts, DeviceAddress, Options, Site, Times, Tls};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use report::{Row, median, tell};

/// Says what this process is to be.
const ROLE: &str = "STAFFETTA_BENCH_ROLE";

/// How long anything may take before the benchmark gives up.
const PATIENCE: Duration = Duration::from_secs(600);

/// How long each of an app's changes of state takes on a device: install, activate, start.
const CHANGE: Duration = Duration::from_millis(300);
const CHANGES: u32 = 3;

/// What a change of state may cost beside the device's own time, and what a pod may cost beside that.
const STEP: Duration = Duration::from_millis(500);
const ALLOWANCE: Duration = Duration::from_millis(50);

/// On how many devices a pod's path is measured, and how often on each.
const MEASURED: usize = 8;
const ROUNDS: usize = 5;

fn main() -> ExitCode {
    match std::env::var(ROLE).as_deref() {
        Ok("controller") => staffetta::run(staffetta::assembly::registry()),
        Ok(count) => devices(count.parse().expect("the parent says how many")),
        Err(_) => {
            let runtime = tokio::runtime::Runtime::new().expect("threads can be started");
            tell("iosxe", &runtime.block_on(measure()));
            ExitCode::SUCCESS
        }
    }
}

/// So many devices, until the parent is gone.
fn devices(count: usize) -> ExitCode {
    let site = Site::start().expect("a thread can be started");
    for number in 1..=count {
        let name = format!("edge-{number}");
        let options = Options { name, tls: Tls::Server, times: Times::each(CHANGE), ..Options::default() };
        site.device(options).expect("a port is free");
    }
    let control = site.control(([127, 0, 0, 1], 0).into()).expect("a port is free");
    println!("http://{control}");
    // It ends with its parent, which holds the other end.
    let _ = std::io::stdin().read_line(&mut String::new());
    ExitCode::SUCCESS
}

async fn measure() -> Vec<Row> {
    let devices = cluster::number("STAFFETTA_BENCH_DEVICES", 50);
    let pods = cluster::number("STAFFETTA_BENCH_PODS", 20);
    let rest = Duration::from_secs(cluster::number("STAFFETTA_BENCH_REST", 60) as u64);
    let server = RealServer::launch(&[]).await;
    let client = cluster::client(server.kubeconfig()).await;
    let site = RemoteSite::start(devices).await;
    let (controller, _folder) = controller(server.kubeconfig(), &site.devices);
    until_nodes(&client, devices).await;

    let mut world = World { api: cluster::pods(&client), seen: running(&client), site, created: 0 };
    let began = Instant::now();
    let nodes: Vec<_> = (0..devices * pods).map(|number| format!("edge-{}", number % devices + 1)).collect();
    world.run(&nodes).await;
    let all_run = began.elapsed();

    // What follows a change is over.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let (before, asked) = (cpu(&controller), world.site.requests().await);
    tokio::time::sleep(rest).await;
    let share = cpu(&controller).saturating_sub(before).as_secs_f64() / rest.as_secs_f64() * 100.0;
    let asked = (world.site.requests().await - asked) as f64 / rest.as_secs_f64();
    let resident = resident(&controller);

    let (mut paths, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        paths.extend(world.paths().await);
        world.site.reach("edge-1", "hangs").await;
        beside.extend(world.paths().await);
        world.site.reach("edge-1", "up").await;
    }
    let most = (STEP * CHANGES + ALLOWANCE).as_secs_f64() * 1000.0;
    let longest = paths.iter().copied().fold(0.0, f64::max);
    let (usual, beside) = (median(paths), median(beside));
    vec![
        Row::new(format!("CPU, {devices} devices with {pods} pods each"), "% of a core", share)
            .goal("under 5", share < 5.0),
        Row::new("resident", "MiB", resident).goal("under 100", resident < 100.0),
        Row::new("requests to devices", "1/s", asked),
        Row::new(format!("until all {} pods run", devices * pods), "s", all_run.as_secs_f64()),
        Row::new("added to a pod's path, longest", "ms", longest)
            .goal(format!("at most {most}: 500 a change of state, and 50"), longest <= most),
        Row::new("added to a pod's path, median", "ms", usual),
        Row::new("the same while a device hangs", "ms", beside)
            .against(usual)
            .goal("at most 1.1 times as long", beside <= usual * 1.1),
    ]
}

/// The devices in their process.
struct RemoteSite {
    devices: Vec<DeviceAddress>,
    url: String,
    http: reqwest::Client,
    _child: Child,
}

impl RemoteSite {
    async fn start(count: usize) -> Self {
        let mut child = child(&count.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program can be started again");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let url = lines.next_line().await.expect("it writes text").expect("it says where it is");
        let http = reqwest::Client::new();
        let devices = http.get(format!("{url}/devices")).send().await.expect("it answers");
        let devices = devices.json().await.expect("it is a list of devices");
        Self { devices, url, http, _child: child }
    }

    /// How many requests came to all of them so far.
    async fn requests(&self) -> u64 {
        let mut requests = 0;
        for device in &self.devices {
            let counts = self.http.get(format!("{}/devices/{}/counts", self.url, device.name)).send().await;
            let counts: Counts = counts.expect("it answers").json().await.expect("they are counts");
            requests += counts.requests;
        }
        requests
    }

    async fn reach(&self, device: &str, how: &str) {
        let url = format!("{}/devices/{device}/reachability", self.url);
        let answer = self.http.post(url).json(how).send().await.expect("it answers");
        assert!(answer.status().is_success(), "{answer:?}");
    }
}

/// The controller as it ships, with nothing but the handler `app_hosting`.
fn controller(kubeconfig: &Path, devices: &[DeviceAddress]) -> (Child, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let description = |device: &DeviceAddress| {
        let (address, port) =
            device.url.trim_start_matches("https://").split_once(':').expect("it is HOST:PORT");
        let port: u16 = port.parse().expect("it is a port");
        json!({ "name": device.name, "device": {
            "driver": "XE", "address": address, "port": port, "username": "admin", "password": "cisco-123",
            "tls": { "enabled": true, "insecureSkipVerify": true }, "maxPods": 100, "xe": {},
        } })
    };
    let described: Vec<Value> = devices.iter().map(description).collect();
    let list = folder.path().join("devices.yaml");
    // JSON is YAML.
    std::fs::write(&list, json!({ "devices": described }).to_string()).expect("the folder can be written");
    let file = folder.path().join("staffetta.toml");
    let text = format!(
        "[kubernetes]\nenabled_handlers = [\"app_hosting\"]\n[app_hosting]\ndevice_files = [{:?}]\n\
         poll_interval_ms = 5000\n[leader_election]\nenabled = false\n[admin]\nlisten = \"127.0.0.1:0\"\n",
        list.display().to_string()
    );
    std::fs::write(&file, text).expect("the folder can be written");
    let mut controller = child("controller");
    controller.args(["run", "--config"]).arg(&file).arg("--kubeconfig").arg(kubeconfig).stdin(Stdio::null());
    (controller.spawn().expect("this program can be started again"), folder)
}

fn child(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("it runs"));
    command.env(ROLE, role).env("STAFFETTA_LOG__LEVEL", "error").kill_on_drop(true);
    command
}

/// Waits until each device has its node.
async fn until_nodes(client: &Client, count: usize) {
    let nodes: Api<Node> = Api::all(client.clone());
    let deadline = Instant::now() + PATIENCE;
    loop {
        let listed = nodes.list(&ListParams::default()).await.expect("nodes can be listed");
        let is_ready = |node: &&Node| {
            let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
        };
        let ready = listed.iter().filter(is_ready).count();
        if ready == count {
            return;
        }
        assert!(Instant::now() < deadline, "{ready} of {count} nodes are ready");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// What the watch shows: the names of pods that run, and those of pods that are gone.
enum Seen {
    Runs(String, Instant),
    Gone(String),
}

/// The watch of the benchmark.
fn running(client: &Client) -> mpsc::UnboundedReceiver<Seen> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let watch = watcher(cluster::pods(client), watcher::Config::default());
    tokio::spawn(watch.for_each(move |event| {
        let seen = match event {
            Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => {
                let runs =
                    pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Running"));
                runs.then(|| Seen::Runs(pod.name_any(), Instant::now()))
            }
            Ok(watcher::Event::Delete(pod)) => Some(Seen::Gone(pod.name_any())),
            _ => None,
        };
        if let Some(seen) = seen {
            // Nobody listens any more when the benchmark has ended.
            let _ = sender.send(seen);
        }
        std::future::ready(())
    }));
    receiver
}

struct World {
    api: Api<Pod>,
    seen: mpsc::UnboundedReceiver<Seen>,
    site: RemoteSite,
    /// How many pods were created.
    created: usize,
}

impl World {
    /// A pod on each of these nodes; ends when all run. By its name, how long each took.
    async fn run(&mut self, nodes: &[String]) -> BTreeMap<String, Duration> {
        let mut began = BTreeMap::new();
        for node in nodes {
            self.created += 1;
            let name = format!("pod-{}", self.created);
            began.insert(name.clone(), Instant::now());
            self.api.create(&PostParams::default(), &pod(&name, node)).await.expect("a pod can be created");
        }
        let mut took = BTreeMap::new();
        while took.len() < nodes.len() {
            if let Seen::Runs(name, at) = self.next().await
                && let Some(began) = began.get(&name)
            {
                took.entry(name).or_insert(at - *began);
            }
        }
        took
    }

    /// How long a pod's path takes beside the device's own time, in milliseconds, on some devices that are idle else.
    async fn paths(&mut self) -> Vec<f64> {
        // The first one is another's.
        let nodes: Vec<_> = (2..2 + MEASURED).map(|number| format!("edge-{number}")).collect();
        let own = (CHANGE * CHANGES).as_secs_f64();
        let took = self.run(&nodes).await;
        let added = took.values().map(|took| (took.as_secs_f64() - own) * 1000.0).collect();
        self.delete(took.into_keys().collect()).await;
        added
    }

    async fn delete(&mut self, mut names: BTreeSet<String>) {
        for name in &names {
            self.api.delete(name, &DeleteParams::default()).await.expect("a pod can be deleted");
        }
        while !names.is_empty() {
            if let Seen::Gone(name) = self.next().await {
                names.remove(&name);
            }
        }
    }

    async fn next(&mut self) -> Seen {
        let next = tokio::time::timeout(PATIENCE, self.seen.recv()).await;
        next.expect("something happens in time").expect("the watch goes on")
    }
}

/// A pod for a device.
fn pod(name: &str, node: &str) -> Pod {
    let resources = json!({ "requests": { "cpu": "100m", "memory": "64Mi" } });
    let pod = json!({
        "metadata": { "name": name, "labels": { "app": "edge" } },
        "spec": {
            "nodeName": node, "automountServiceAccountToken": false, "enableServiceLinks": false,
            "tolerations": [{ "operator": "Exists" }],
            "containers": [{ "name": "app", "image": "flash:/hello.tar", "imagePullPolicy": "IfNotPresent",
                "resources": resources }],
        },
    });
    serde_json::from_value(pod).expect("it is a pod")
}

fn process(child: &Child) -> procfs::process::Process {
    let id = i32::try_from(child.id().expect("it runs")).expect("a process id fits");
    procfs::process::Process::new(id).expect("it runs")
}

/// The CPU time that a process has used.
fn cpu(child: &Child) -> Duration {
    let stat = process(child).stat().expect("/proc can be read");
    Duration::from_secs_f64((stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64)
}

/// What a process holds, in MiB.
fn resident(child: &Child) -> f64 {
    let status = process(child).status().expect("/proc can be read");
    status.vmrss.unwrap_or_default() as f64 / 1024.0
}
