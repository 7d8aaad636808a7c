//! `cargo xtask bench iosxe`: what many devices cost one controller, and what the controller costs a pod.
//!
//! A real API server, simulated IOS-XE devices, and the controller as it ships, which verifies the certificate of each device and
//! takes part in an election; each in processes of their own. The CPU time and the memory of the controller's process come from
//! /proc, while all pods run and the devices are polled. A pod's path is from just before it is created until the watch of the
//! benchmark shows it Running; the device's own time is subtracted.

#![allow(clippy::cast_precision_loss, reason = "the figures are far below 2^52")]
#![allow(clippy::print_stdout, reason = "a child process prints its address")]

mod cluster;
mod program;
mod report;
mod wait;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::json;
use staffetta_apiserver::testing::RealServer;
use staffetta_iosxe_device::{Counts, DeviceAddress, Options, Site, Times, Tls};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;
use tokio::sync::mpsc;

use program::{Program, again, role};
use report::{Row, largest, median, milliseconds, number, publish};
use wait::{PATIENCE, complete, until};

/// The duration of each of an app's state changes on a device: install, activate, start.
const CHANGE: Duration = Duration::from_millis(300);
const CHANGES: u32 = 3;

/// The allowance for a state change beside the device's own time, and for a pod beside that.
const STEP: Duration = Duration::from_millis(500);
const ALLOWANCE: Duration = Duration::from_millis(50);

/// The number of devices on which a pod's path is measured, and the number of pods on each.
const MEASURED: usize = 8;
const ROUNDS: usize = 5;

fn main() -> ExitCode {
    if let Some(count) = role() {
        return devices(count.parse().expect("the role is the number of devices"));
    }
    let runtime = tokio::runtime::Runtime::new().expect("threads can be started");
    publish("iosxe", &runtime.block_on(measure()));
    ExitCode::SUCCESS
}

/// The first line that the process of the devices prints, in JSON.
#[derive(Serialize, Deserialize)]
struct Announcement {
    /// The URL of its control API.
    control: String,
    /// The certificate (PEM) of the authority that signed those of the devices.
    authority: String,
}

/// Runs so many devices until the parent process ends.
fn devices(count: usize) -> ExitCode {
    let site = Site::start().expect("a thread can be started");
    for number in 1..=count {
        let name = format!("edge-{number}");
        let options = Options { name, tls: Tls::Server, times: Times::each(CHANGE), ..Options::default() };
        site.device(options).expect("a port is free");
    }
    let control = site.control(([127, 0, 0, 1], 0).into()).expect("a port is free");
    let announcement =
        Announcement { control: format!("http://{control}"), authority: site.authority().to_owned() };
    println!("{}", serde_json::to_string(&announcement).expect("it is plain data"));
    // The parent holds the other end of the standard input until it ends.
    let _ = std::io::stdin().read_line(&mut String::new());
    ExitCode::SUCCESS
}

async fn measure() -> Vec<Row> {
    let devices = number("STAFFETTA_BENCH_DEVICES", 50);
    let pods = number("STAFFETTA_BENCH_PODS", 20);
    let rest = Duration::from_secs(number("STAFFETTA_BENCH_REST", 60) as u64);
    let server = RealServer::start(&[]).await;
    let client = cluster::client(server.kubeconfig()).await;
    let folder = tempfile::tempdir().expect("a folder can be made");
    let site = RemoteSite::start(devices).await;
    let mut controller = Program::start(server.kubeconfig(), &site.configuration(folder.path()));
    controller.logs("this process is the leader").await;
    until_nodes(&client, devices).await;

    let mut world = World { api: cluster::pods(&client), seen: running(&client), site, created: 0 };
    let began = Instant::now();
    let nodes: Vec<_> = (0..devices * pods).map(|number| format!("edge-{}", number % devices + 1)).collect();
    world.run(&nodes).await;
    let all_run = began.elapsed();

    // What follows a change is over.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let (before, requests) = (controller.usage(), world.site.requests().await);
    tokio::time::sleep(rest).await;
    let usage = controller.usage();
    let share = usage.cpu.saturating_sub(before.cpu).as_secs_f64() / rest.as_secs_f64() * 100.0;
    let requests = (world.site.requests().await - requests) as f64 / rest.as_secs_f64();

    let (mut paths, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        paths.extend(world.paths().await);
        world.site.reach("edge-1", "hangs").await;
        beside.extend(world.paths().await);
        world.site.reach("edge-1", "up").await;
    }
    let most = milliseconds(STEP * CHANGES + ALLOWANCE);
    let (longest, typical, beside) = (largest(&paths), median(paths), median(beside));
    vec![
        Row::new(format!("CPU, {devices} devices with {pods} pods each"), "% of a core", share)
            .goal("under 5", share < 5.0),
        Row::new("resident", "MiB", usage.resident).goal("under 100", usage.resident < 100.0),
        Row::new("requests to devices", "1/s", requests),
        Row::new(format!("until all {} pods run", devices * pods), "s", all_run.as_secs_f64()),
        Row::new("added to a pod's path, longest", "ms", longest)
            .goal(format!("at most {most}: 500 a change of state, and 50"), longest <= most),
        Row::new("added to a pod's path, median", "ms", typical),
        Row::new("the same while a device hangs", "ms", beside)
            .against(typical)
            .goal("at most 1.1 times as long", beside <= typical * 1.1),
    ]
}

/// The devices in their process.
struct RemoteSite {
    devices: Vec<DeviceAddress>,
    announcement: Announcement,
    http: reqwest::Client,
    _child: Child,
}

impl RemoteSite {
    async fn start(count: usize) -> Self {
        let mut child = again(&count.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program can be started again");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let line = lines.next_line().await.expect("it prints text").expect("it prints where it is");
        let announcement: Announcement = serde_json::from_str(&line).expect("the line is an announcement");
        let http = reqwest::Client::new();
        let devices = http.get(format!("{}/devices", announcement.control)).send().await;
        let devices = devices.expect("it answers").json().await.expect("it is a list of devices");
        Self { devices, announcement, http, _child: child }
    }

    /// The configuration of a controller of these devices, with its files in this folder.
    fn configuration(&self, folder: &Path) -> String {
        let (authority, list) = (folder.join("authority.pem"), folder.join("devices.yaml"));
        std::fs::write(&authority, &self.announcement.authority).expect("the folder can be written");
        let described = self.devices.iter().map(|device| {
            let at = device.url.strip_prefix("https://").and_then(|at| at.split_once(':'));
            let (address, port) = at.expect("it is https://HOST:PORT");
            let port: u16 = port.parse().expect("it is a port");
            json!({ "name": device.name, "device": {
                "driver": "XE", "address": address, "port": port, "username": "admin", "password": "cisco-123",
                "tls": { "enabled": true, "caFile": authority }, "maxPods": 100, "xe": {},
            } })
        });
        let described: Vec<_> = described.collect();
        // JSON is YAML.
        std::fs::write(&list, json!({ "devices": described }).to_string())
            .expect("the folder can be written");
        format!(
            "[kubernetes]\nenabled_handlers = [\"app_hosting\"]\n\
             [app_hosting]\ndevice_files = [{:?}]\npoll_interval_ms = 5000\n",
            list.display().to_string()
        )
    }

    /// The number of requests to all of them so far.
    async fn requests(&self) -> u64 {
        let mut requests = 0;
        for device in &self.devices {
            let counts = self
                .http
                .get(format!("{}/devices/{}/counts", self.announcement.control, device.name))
                .send()
                .await;
            let counts: Counts = counts.expect("it answers").json().await.expect("they are counts");
            requests += counts.requests;
        }
        requests
    }

    async fn reach(&self, device: &str, how: &str) {
        let url = format!("{}/devices/{device}/reachability", self.announcement.control);
        let answer = self.http.post(url).json(how).send().await.expect("it answers");
        assert!(answer.status().is_success(), "{answer:?}");
    }
}

/// Waits until each device has its node.
async fn until_nodes(client: &Client, count: usize) {
    let nodes: Api<Node> = Api::all(client.clone());
    until(Duration::from_millis(200), async || {
        let listed = nodes.list(&ListParams::default()).await.expect("nodes can be listed");
        let is_ready = |node: &&Node| {
            let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
        };
        complete(listed.iter().filter(is_ready).count(), count, "nodes are ready")
    })
    .await;
}

/// The observed events: names of running pods and of deleted pods.
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
            // The receiver is gone when the benchmark has ended.
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
    /// The number of pods created.
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

    /// The durations of pods' paths beside the device's own time, in milliseconds, on otherwise idle devices.
    async fn paths(&mut self) -> Vec<f64> {
        // The first device is the one that hangs.
        let nodes: Vec<_> = (2..2 + MEASURED).map(|number| format!("edge-{number}")).collect();
        let own = milliseconds(CHANGE * CHANGES);
        let took = self.run(&nodes).await;
        let added = took.values().map(|took| milliseconds(*took) - own).collect();
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
