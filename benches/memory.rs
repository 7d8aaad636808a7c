//! `cargo xtask bench memory`: the resident memory when 50,000 pods are watched and annotated.
//!
//! Beside the controller, at the same time and over the same pods, two processes with nothing but kube-runtime's
//! `reflector::Store<Pod>`: one that keeps the pods as they are, and one that drops `managedFields` first, as a careful
//! controller does. All three see each pod and its annotation, and have the same rest. The controller is this program started
//! again with the drivers of a simulated network, which runs in the process of the benchmark: its memory is
//! not counted.

#![allow(clippy::print_stdout, reason = "a child process prints its progress")]

mod cluster;
mod program;
mod report;
mod wait;

use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, ResourceExt};
use staffetta_apiserver::testing::RealServer;
use staffetta_memory::MemoryOptions;
use staffetta_memory::http::{Server, ServerOptions};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout};
use tokio::runtime::{Builder, Runtime};

use program::{Program, Usage, again, role, vif};
use report::{Row, number, publish};
use wait::PATIENCE;

/// The allocator of the program, and of the processes with a store.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The roles of the processes beside the benchmark itself.
const CONTROLLER: &str = "controller";
const NAIVE_STORE: &str = "naive store";
const STRIPPED_STORE: &str = "stripped store";

fn main() -> ExitCode {
    match role().as_deref() {
        Some(CONTROLLER) => staffetta::run(staffetta::assembly::registry()),
        Some(store) => {
            let kubeconfig = std::env::args_os().nth(1).expect("it was started with a kubeconfig");
            runtime(1).block_on(keep_pods(Path::new(&kubeconfig), store == STRIPPED_STORE))
        }
        None => {
            publish("memory", &runtime(2).block_on(measure()));
            ExitCode::SUCCESS
        }
    }
}

fn runtime(threads: usize) -> Runtime {
    let runtime = Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    runtime.expect("threads can be started")
}

/// Keeps all pods in a store. Prints the number of annotated ones when all are listed, and when each is annotated.
async fn keep_pods(kubeconfig: &Path, stripped: bool) -> ExitCode {
    let client = cluster::client(kubeconfig).await;
    let (store, writer) = reflector::store::<Pod>();
    let pods = watcher(Api::all(client), watcher::Config::default()).modify(|pod: &mut Pod| {
        if stripped {
            pod.managed_fields_mut().clear();
        }
    });
    let mut events = std::pin::pin!(reflector(writer, pods));
    let is_annotated = |pod: &Pod| pod.annotations().contains_key(cluster::VIF);
    let mut annotated = 0;
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::InitDone) => {
                annotated = store.state().iter().filter(|pod| is_annotated(pod)).count();
                println!("{annotated}");
            }
            Ok(watcher::Event::Apply(pod)) if is_annotated(&pod) => {
                annotated += 1;
                if annotated == store.len() {
                    println!("{annotated}");
                }
            }
            _ => {}
        }
    }
    ExitCode::FAILURE
}

async fn measure() -> Vec<Row> {
    let pods = number("STAFFETTA_BENCH_PODS", 50_000);
    let rest = Duration::from_secs(number("STAFFETTA_BENCH_REST", 60) as u64);
    let server = RealServer::start(&[]).await;
    let client = cluster::client(server.kubeconfig()).await;
    let names: Vec<_> = (0..pods).map(|number| format!("pod-{number}")).collect();
    cluster::create(&client, &names).await;

    let memory = MemoryOptions { activation_delay_ms: 0, ..MemoryOptions::default() };
    let network =
        Server::start(&ServerOptions { memory, ..ServerOptions::default() }).expect("a port is free");
    let mut naive = Store::start(server.kubeconfig(), NAIVE_STORE);
    let mut stripped = Store::start(server.kubeconfig(), STRIPPED_STORE);
    for store in [&mut naive, &mut stripped] {
        store.until_annotated(0).await;
    }
    let sections =
        vif("simulated", "simulated", "noop") + &format!("[simulated]\nurl = {:?}\n", network.url());
    let controller = Program::run(again(CONTROLLER), server.kubeconfig(), &sections);
    cluster::until_wired(&client, pods, false).await;
    for store in [&mut naive, &mut stripped] {
        store.until_annotated(pods).await;
    }
    tokio::time::sleep(rest).await;
    let (ours, naive, stripped) = (controller.usage(), naive.usage(), stripped.usage());
    vec![
        Row::new(format!("resident, {pods} pods, beside Store<Pod>"), "MiB", ours.resident)
            .against(naive.resident)
            .goal("at most a tenth of a Store<Pod>", ours.resident <= naive.resident / 10.0),
        Row::new("the same, beside one without managedFields", "MiB", ours.resident)
            .against(stripped.resident)
            .goal("at most a tenth of it", ours.resident <= stripped.resident / 10.0),
        Row::new("peak, beside Store<Pod>", "MiB", ours.peak).against(naive.peak),
        Row::new("the same, beside one without managedFields", "MiB", ours.peak).against(stripped.peak),
    ]
}

/// A process with nothing but a store of pods.
struct Store {
    child: Child,
    counts: Lines<BufReader<ChildStdout>>,
}

impl Store {
    fn start(kubeconfig: &Path, role: &str) -> Self {
        let mut child = again(role)
            .arg(kubeconfig)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program can be started again");
        let counts = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        Self { child, counts }
    }

    /// Waits until it has counted so many annotated pods.
    async fn until_annotated(&mut self, pods: usize) {
        let counts = async {
            while let Some(count) = self.counts.next_line().await.expect("it prints text") {
                if count.parse() == Ok(pods) {
                    return;
                }
            }
            panic!("a store ended");
        };
        tokio::time::timeout(PATIENCE, counts).await.expect("a store counts its pods in time");
    }

    fn usage(&self) -> Usage {
        Usage::of(&self.child)
    }
}
